// attn man: prints the manual pages, in roff format.
#include <filesystem>
#include <memory>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/base/version.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/commands.h"
#include "attn/cli/help.h"
#include "attn/cli/terminal.h"
#include "attn/io/staged_file.h"

namespace attn {
namespace {

/// Escapes roff requests and special characters.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return out;
}

/// Preformatted text, with a small indent, as lines may have 78 columns.
std::string preformatted(const std::string& text) {
  std::string trimmed = text.substr(std::min(text.find_first_not_of('\n'), text.size()));
  while (trimmed.ends_with('\n')) trimmed.pop_back();
  return ".in 2\n.nf\n" + roff(trimmed) + "\n.fi\n.in\n";
}

std::string page_header(const std::string& page, const std::string& what, char section = '1') {
  std::string title = page;
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return ".TH " + roff(title) + " " + section + " \"\" \"attn " + kVersion + "\" \"" +
         (section == '1' ? "User Commands" : "Topics of attn") + "\"\n" + ".SH NAME\n" +
         roff(page) + " \\- " + roff(what) + "\n";
}

/// The entry of one option: names, placeholder and help.
std::string option_entry(const Option& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
  if (option.takes_value() && !option.is_positional())
    names += " \\fI" + roff(option.placeholder) + "\\fR";
  else if (option.placeholder.starts_with("[="))
    names += roff(option.placeholder);
  return ".TP\n" + names + "\n" + roff(option.texts().help) + "\n";
}

std::string options_text(const Command& command) {
  std::string text;
  for (const OptionGroup& group : option_groups(command)) {
    text += ".SS " + roff(group.name) + "\n";
    for (const Option* option : group.options) text += option_entry(*option);
  }
  return text;
}

/// A topic text, split at "Example:".
struct ManParts {
  std::string text, example;
};

ManParts parts_of(const std::string& help) {
  const std::size_t at = help.find("Example:\n");
  if (at == std::string::npos) return {help, ""};
  return {help.substr(0, at), help.substr(help.find('\n', at))};
}

std::string examples(const std::string& lines) {
  return lines.empty() ? "" : ".SH EXAMPLES\n" + preformatted(lines);
}

std::string page_of(const CommandEntry& entry) {
  const Command command = make_command(entry);
  std::string text = page_header(std::string("attn-") + entry.name, entry.summary);
  text += ".SH SYNOPSIS\n\\fBattn " + roff(entry.name) + "\\fR [\\fIOPTIONS\\fR]";
  for (const Option& option : command.options)
    if (option.is_positional()) text += " \\fI" + roff(synopsis_of(option)) + "\\fR";
  if (!command.subcommands.empty()) text += " [\\fISUBCOMMAND\\fR]";
  text += "\n.SH DESCRIPTION\n" + roff(command.description + "\n\n") + examples(command.example);
  text += ".SH OPTIONS\n" + options_text(command);
  for (const Command& subcommand : command.subcommands)
    text += ".SH " + roff(subcommand.name) + "\n" + roff(subcommand.summary) + "\n" +
            options_text(subcommand);
  if (!command.notes.empty()) text += ".SH NOTES\n" + preformatted(command.notes);
  return text + ".SH SEE ALSO\n\\fBattn\\fR(1)\n";
}

std::string page_of(const Topic& topic) {
  const ManParts parts = parts_of(topic.text);
  return page_header("attn-" + topic.name, topic.what, '7') + ".SH DESCRIPTION\n" +
         preformatted(parts.text) + examples(parts.example) + ".SH SEE ALSO\n\\fBattn\\fR(1)\n";
}

std::string main_page() {
  std::string others;
  const auto add = [&](const std::string& name, const char* section) {
    others += (others.empty() ? "" : ", ") + ("\\fBattn\\-" + roff(name) + "\\fR" + section);
  };
  for (const CommandEntry& entry : commands()) add(entry.name, "(1)");
  for (const Topic& topic : topics()) add(topic.name, "(7)");
  return page_header("attn", "attention from the command line") +
         ".SH SYNOPSIS\n\\fBattn\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n" +
         preformatted(overview()) + ".SH SEE ALSO\n" + others + "\n";
}

int write_all(const std::string& folder) {
  OutputPolicy policy;
  policy.force = true;
  const auto write = [&](const std::string& name, const std::string& text,
                         const std::string& section = "1") {
    const std::string directory = folder + "/man" + section;
    std::error_code fault;
    std::filesystem::create_directories(directory, fault);
    if (fault) throw Error(ErrorKind::cannot_create, printable(directory) + ": " + fault.message());
    OutputFile out(directory + "/" + name + "." + section, policy);
    out.write(text);
    out.commit();
  };
  write("attn", main_page());
  for (const CommandEntry& entry : commands())
    write(std::string("attn-") + entry.name, page_of(entry));
  for (const Topic& topic : topics()) write("attn-" + topic.name, page_of(topic), "7");
  return 0;
}

}  // namespace

Command man_command() {
  struct Args {
    std::string page, folder;
  };
  const auto args = std::make_shared<Args>();
  Command command;
  command.description =
      "Prints the manual page of attn, of a command or of a topic, in roff format.";
  command.example =
      "  attn man run > attn-run.1\n"
      "  attn man --all man";
  command.add(suggesting(
      positional("COMMAND", args->page, "command or topic; default: attn itself"), help_names()));
  command.add(text("--all", args->folder, "FOLDER",
                   "write all pages to FOLDER/man1 and FOLDER/man7, overwriting existing ones"));
  command.action = [args] {
    if (!args->folder.empty()) return write_all(args->folder);
    if (args->page.empty())
      print_data(main_page());
    else if (const CommandEntry* entry = find_command(args->page))
      print_data(page_of(*entry));
    else if (const Topic* topic = find_topic(args->page))
      print_data(page_of(*topic));
    else
      fail_usage("no manual page for '" + printable(args->page) + "'" +
                 did_you_mean(args->page, help_names(), NameKind::command) +
                 "; 'attn help' lists commands and topics");
    return 0;
  };
  return command;
}

}  // namespace attn
