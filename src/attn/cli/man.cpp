// attn man: the manual pages, made from the options' table, in roff's man macros.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "attn/cli/subcommand.h"
#include "attn/io/file.h"
#include "attn/job/version.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

/// `text` with nothing in it that roff would take for a request or a special character.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return out;
}

/// Text whose lines stay as they are.
std::string as_it_is(const std::string& text) {
  std::string trimmed = text.substr(std::min(text.find_first_not_of('\n'), text.size()));
  while (trimmed.ends_with('\n')) trimmed.pop_back();
  return ".nf\n" + roff(trimmed) + "\n.fi\n";
}

std::string heading(const std::string& page, const std::string& what) {
  std::string title = page;
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return ".TH " + roff(title) + " 1 \"\" \"attn " + kVersion + "\" \"User Commands\"\n" +
         ".SH NAME\n" + roff(page) + " \\- " + roff(what) + "\n";
}

/// ".TP", the names in bold with what they take, and what it means.
std::string entry(const OptionFacts& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
  if (option.takes_value && !option.positional)
    names += " \\fI" + roff(option.placeholder) + "\\fR";
  return ".TP\n" + names + "\n" + roff(option.what) + "\n";
}

/// Groups in the order in which they first appear; positional arguments before them.
std::string options_text(const CLI::App& app) {
  std::vector<std::pair<std::string, std::string>> groups = {{"Arguments", ""}};
  for (const OptionFacts& option : facts_of(app)) {
    if (!option.positional && option.group.empty()) continue;  // another page has it
    const std::string group = option.positional ? "Arguments" : option.group;
    auto place = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& other) { return other.first == group; });
    if (place == groups.end()) place = groups.insert(place, {group, ""});
    place->second += entry(option);
  }
  std::string text = ".SH OPTIONS\n";
  for (const auto& [name, entries] : groups)
    if (!entries.empty()) text += ".SS " + roff(name) + "\n" + entries;
  return text;
}

std::string page_of(const Subcommand& subcommand) {
  const auto command = declare(subcommand);
  const CLI::App& app = *command->app;
  std::string text = heading(std::string("attn-") + subcommand.name, subcommand.what);
  text += ".SH SYNOPSIS\n\\fBattn " + roff(subcommand.name) + "\\fR [\\fIOPTIONS\\fR]";
  for (const OptionFacts& option : facts_of(app))
    if (option.positional) text += " \\fI" + roff(option.names[0]) + "\\fR";
  const std::string description = app.get_description();
  const std::size_t example = description.find("Example:\n");
  text += "\n.SH DESCRIPTION\n" + as_it_is(description.substr(0, example));
  if (example != std::string::npos)
    text += ".SH EXAMPLES\n" + as_it_is(description.substr(description.find('\n', example)));
  text += options_text(app);
  for (const CLI::App* part : app.get_subcommands({}))
    text += ".SH " + roff(part->get_name()) + "\n" + roff(part->get_description()) + "\n" +
            options_text(*part).substr(std::string(".SH OPTIONS\n").size());
  if (!app.get_footer().empty()) text += ".SH NOTES\n" + as_it_is(app.get_footer());
  return text + ".SH SEE ALSO\n\\fBattn\\fR(1)\n";
}

std::string main_page() {
  std::string others;
  for (const Subcommand& subcommand : subcommands())
    others += (others.empty() ? "" : ", ") + ("\\fBattn\\-" + roff(subcommand.name) + "\\fR(1)");
  return heading("attn", "attention from the command line") +
         ".SH SYNOPSIS\n\\fBattn\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n" +
         as_it_is(overview()) + ".SH SEE ALSO\n" + others + "\n";
}

int write_all(const std::string& folder) {
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  if (fault) throw Error(ErrorKind::cannot_create, printable(folder) + ": " + fault.message());
  OutputPolicy policy;
  policy.force = true;
  const auto write = [&](const std::string& name, const std::string& text) {
    OutputFile out(folder + "/" + name + ".1", policy);
    out.write(text);
    out.commit();
  };
  write("attn", main_page());
  for (const Subcommand& subcommand : subcommands())
    write(std::string("attn-") + subcommand.name, page_of(subcommand));
  return 0;
}

}  // namespace

Action add_man(CLI::App& app) {
  struct Typed {
    std::string command, folder;
  };
  const auto typed = std::make_shared<Typed>();
  app.description(
      "Prints the manual page of attn or of one of its commands, in roff.\n\n"
      "Example:\n"
      "  attn man run > attn-run.1\n"
      "  attn man --all man1");
  app.add_option("COMMAND", typed->command, "whose page; default: attn's own");
  app.add_option("--all", typed->folder, "write every page into FOLDER, replacing older ones")
      ->type_name("FOLDER");
  return [typed] {
    if (!typed->folder.empty()) return write_all(typed->folder);
    const Subcommand* subcommand = find_subcommand(typed->command);
    if (subcommand == nullptr && !typed->command.empty())
      throw Error(ErrorKind::usage, "no page on '" + printable(typed->command) + "'" +
                                        did_you_mean(typed->command, subcommand_names()));
    print(subcommand == nullptr ? main_page() : page_of(*subcommand));
    return 0;
  };
}

}  // namespace attn
