#include "attn/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "attn/base/error.h"
#include "attn/base/memory_limit.h"
#include "attn/base/text.h"

namespace attn {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

TerminalColours supported_colours() {
  const std::string colours = environment("COLORTERM"), term = environment("TERM");
  if (colours == "truecolor" || colours == "24bit" || term.ends_with("-direct"))
    return TerminalColours::truecolour;
  return term.find("256color") != std::string::npos ? TerminalColours::palette_256
                                                    : TerminalColours::none;
}

}  // namespace

bool prints_to_terminal() { return isatty(STDOUT_FILENO) == 1; }

std::size_t terminal_width(int terminal) {
  winsize size{};
  if (ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const long columns = std::strtol(environment("COLUMNS").c_str(), nullptr, 10);
  return columns > 0 ? static_cast<std::size_t>(columns) : 80;
}

TerminalStyle terminal_style(const std::string& when, std::size_t width) {
  TerminalStyle style;
  const bool fit = prints_to_terminal() && environment("NO_COLOR").empty();
  if (when == "always")
    style.colours = supported_colours() == TerminalColours::truecolour
                        ? TerminalColours::truecolour
                        : TerminalColours::palette_256;
  else if (when == "auto" && fit)
    style.colours = supported_colours();
  style.width =
      std::clamp<std::size_t>(width == 0 ? terminal_width(STDOUT_FILENO) : width, 20, 1000);
  return style;
}

bool can_show_bar() {
  const std::string terminal = environment("TERM");
  return isatty(STDERR_FILENO) == 1 && !terminal.empty() && terminal != "dumb";
}

void refuse_binary_on_terminal(const FormatRow& format) {
  if (format.is_binary() && prints_to_terminal())
    fail_usage("refusing to write binary data to the terminal; use -o FILE or a pipe");
}

namespace {

bool g_quiet = false;
std::string* g_messages = nullptr;

}  // namespace

void set_quiet(bool quiet) { g_quiet = quiet; }

bool is_quiet() { return g_quiet; }

void collect_messages(std::string* messages) { g_messages = messages; }

void write_message(const std::string& text) {
  const std::string message = "attn: " + printable_message(text) + "\n";
  if (g_messages != nullptr)
    *g_messages += message;
  else
    std::fputs(message.c_str(), stderr);
}

void note(const std::string& text) {
  if (!g_quiet) write_message(text);
}

int report_out_of_memory(const char* message) {
  if (g_messages != nullptr)
    g_messages->append("attn: ").append(message).append("\n");
  else
    std::fprintf(stderr, "attn: %s\n", message);
  return static_cast<int>(ErrorKind::data);
}

int report_exception(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const BrokenPipe&) {
    return 128 + SIGPIPE;
  } catch (const Error& error) {
    for (const std::string& line : error.lines()) write_message(line);
    return static_cast<int>(error.kind());
  } catch (const MemoryLimitReached& error) {  // there is memory for a message
    write_message(error.what());
    return static_cast<int>(ErrorKind::data);
  } catch (const std::bad_alloc& fault) {
    return report_out_of_memory(message_of(fault));
  } catch (const std::exception& error) {
    write_message(std::string("internal error: ") + error.what());
    return static_cast<int>(ErrorKind::internal);
  }
}

void write_error_lines(std::string_view text) { std::fputs(printable_lines(text).c_str(), stderr); }

void draw_status(const std::string& text) {
  std::fprintf(stderr, "\r%s\x1b[K", printable_message(text).c_str());
}

void clear_status() { draw_status(""); }

void print(std::string_view text) {
  OutputFile out("-", {});
  write_lines(out, text);
  out.commit();
}

void write_lines(OutputFile& out, std::string_view text) {
  constexpr std::size_t kBlock = std::size_t{64} << 10;  // bounds the memory of the copy
  while (!text.empty()) {
    const std::size_t last = text.find('\n', std::min(kBlock, text.size() - 1));
    const std::size_t end = last == text.npos ? text.size() : last + 1;
    out.write(printable_lines(text.substr(0, end)));
    text.remove_prefix(end);
  }
}

void print_data(std::string_view data) {
  OutputFile out("-", {});
  out.write(data);
  out.commit();
}

}  // namespace attn
