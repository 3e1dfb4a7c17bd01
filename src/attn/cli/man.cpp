// attn man: the manual pages, made from the options' table, in roff's man macros.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/base/version.h"
#include "attn/cli/subcommand.h"
#include "attn/cli/topics.h"
#include "attn/cli/values.h"
#include "attn/io/output_file.h"

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

/// Text whose lines stay as they are; with a small margin, as they may have 78 columns.
std::string as_it_is(const std::string& text) {
  std::string trimmed = text.substr(std::min(text.find_first_not_of('\n'), text.size()));
  while (trimmed.ends_with('\n')) trimmed.pop_back();
  return ".in 2\n.nf\n" + roff(trimmed) + "\n.fi\n.in\n";
}

std::string heading(const std::string& page, const std::string& what, char section = '1') {
  std::string title = page;
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return ".TH " + roff(title) + " " + section + " \"\" \"attn " + kVersion + "\" \"" +
         (section == '1' ? "User Commands" : "Topics of attn") + "\"\n" + ".SH NAME\n" +
         roff(page) + " \\- " + roff(what) + "\n";
}

/// ".TP", the names in bold with what they take, and what it means.
std::string entry(const OptionFacts& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
  if (option.takes_value && !option.positional)
    names += " \\fI" + roff(option.placeholder) + "\\fR";
  else if (option.placeholder.starts_with("[="))
    names += roff(option.placeholder);
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

/// A help text before "Example:" and after it.
struct Parts {
  std::string text, example;
};

Parts parts_of(const std::string& help) {
  const std::size_t at = help.find("Example:\n");
  if (at == std::string::npos) return {help, ""};
  return {help.substr(0, at), help.substr(help.find('\n', at))};
}

std::string examples(const std::string& lines) {
  return lines.empty() ? "" : ".SH EXAMPLES\n" + as_it_is(lines);
}

std::string page_of(const Subcommand& subcommand) {
  const auto command = declare(subcommand);
  const CLI::App& app = *command->app;
  std::string text = heading(std::string("attn-") + subcommand.name, subcommand.what);
  text += ".SH SYNOPSIS\n\\fBattn " + roff(subcommand.name) + "\\fR [\\fIOPTIONS\\fR]";
  for (const OptionFacts& option : facts_of(app))
    if (option.positional) text += " \\fI" + roff(option.synopsis) + "\\fR";
  if (!app.get_subcommands({}).empty()) text += " [\\fISUBCOMMAND\\fR]";
  const Parts parts = parts_of(app.get_description());
  text += "\n.SH DESCRIPTION\n" + roff(parts.text) + examples(parts.example);
  text += options_text(app);
  for (const CLI::App* part : app.get_subcommands({}))
    text += ".SH " + roff(part->get_name()) + "\n" + roff(part->get_description()) + "\n" +
            options_text(*part).substr(std::string(".SH OPTIONS\n").size());
  if (!app.get_footer().empty()) text += ".SH NOTES\n" + as_it_is(app.get_footer());
  return text + ".SH SEE ALSO\n\\fBattn\\fR(1)\n";
}

std::string page_of(const Topic& topic) {
  const Parts parts = parts_of(topic.text);
  return heading("attn-" + topic.name, topic.what, '7') + ".SH DESCRIPTION\n" +
         as_it_is(parts.text) + examples(parts.example) + ".SH SEE ALSO\n\\fBattn\\fR(1)\n";
}

std::string main_page() {
  std::string others;
  const auto add = [&](const std::string& name, const char* section) {
    others += (others.empty() ? "" : ", ") + ("\\fBattn\\-" + roff(name) + "\\fR" + section);
  };
  for (const Subcommand& subcommand : subcommands()) add(subcommand.name, "(1)");
  for (const Topic& topic : topics()) add(topic.name, "(7)");
  return heading("attn", "attention from the command line") +
         ".SH SYNOPSIS\n\\fBattn\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n" +
         as_it_is(overview()) + ".SH SEE ALSO\n" + others + "\n";
}

int write_all(const std::string& folder) {
  OutputPolicy policy;
  policy.force = true;
  const auto write = [&](const std::string& name, const std::string& text,
                         const std::string& section = "1") {
    const std::string place = folder + "/man" + section;
    std::error_code fault;
    std::filesystem::create_directories(place, fault);
    if (fault) throw Error(ErrorKind::cannot_create, printable(place) + ": " + fault.message());
    OutputFile out(place + "/" + name + "." + section, policy);
    out.write(text);
    out.commit();
  };
  write("attn", main_page());
  for (const Subcommand& subcommand : subcommands())
    write(std::string("attn-") + subcommand.name, page_of(subcommand));
  for (const Topic& topic : topics()) write("attn-" + topic.name, page_of(topic), "7");
  return 0;
}

}  // namespace

Action add_man(CLI::App& app) {
  struct Typed {
    std::string command, folder;
  };
  const auto typed = std::make_shared<Typed>();
  app.description(
      "Prints the manual page of attn, of one of its commands or of a topic, in roff.\n\n"
      "Example:\n"
      "  attn man run > attn-run.1\n"
      "  attn man --all man");
  app.add_option("COMMAND", typed->command, "whose page, or a topic's; default: attn's own")
      ->check(offering(help_names()));
  app.add_option("--all", typed->folder,
                 "write every page into FOLDER/man1 and man7, replacing older ones")
      ->type_name("FOLDER");
  return [typed] {
    if (!typed->folder.empty()) return write_all(typed->folder);
    if (typed->command.empty())
      print(main_page());
    else if (const Subcommand* subcommand = find_subcommand(typed->command))
      print(page_of(*subcommand));
    else if (const Topic* topic = find_topic(typed->command))
      print(page_of(*topic));
    else
      throw Error(ErrorKind::usage, "no page on '" + printable(typed->command) + "'" +
                                        did_you_mean(typed->command, help_names()) +
                                        "; 'attn help' names commands and topics");
    return 0;
  };
}

}  // namespace attn
