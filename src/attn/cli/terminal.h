// The terminal's size and colours, and functions that write to standard error and standard output.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "attn/draw/heat_text.h"
#include "attn/io/staged_file.h"
#include "attn/io/tensor_file.h"

namespace attn {

/// Columns of the terminal with this file descriptor; if unknown, COLUMNS or 80.
std::size_t terminal_width(int terminal);

/// The style for standard output. `when` is auto, always or never. With auto, there are no colours
/// if standard output is not a terminal, if NO_COLOR is set and not empty (no-color.org), or if
/// neither COLORTERM (truecolor, 24bit) nor TERM (-direct, 256color) indicates at least 256
/// colours. `width` 0: that of the terminal, COLUMNS or 80.
TerminalStyle terminal_style(const std::string& when, std::size_t width);

/// Whether standard output is a terminal.
bool prints_to_terminal();

/// Errors: usage, if standard output is a terminal and the format is binary.
void refuse_binary_on_terminal(const FormatRow& format);

/// Whether standard error is a terminal on which a line can be overwritten.
bool can_show_bar();

/// "attn: TEXT" on stderr. All messages are written by this function, and no other file writes to
/// stdout or stderr (tests/layering_test.py). Names from files can contain any bytes, so control
/// characters are escaped and long messages are cut (printable_message()).
void write_message(const std::string& text);

/// From now on, messages are appended to `messages` instead, which outlives all of them.
void collect_messages(std::string* messages);

/// The same as write_message(), unless -q was given.
void note(const std::string& text);
void set_quiet(bool quiet);
bool is_quiet();

/// Reports an exception on stderr and returns the exit code. Never throws.
int report_exception(const std::exception_ptr& exception);

/// Reports lack of memory without allocating any. Returns the exit code.
int report_out_of_memory(const char* message);

/// Lines on standard error that are not messages: help, and events as JSON.
void write_error_lines(std::string_view text);

/// Replaces the last line of the terminal on standard error.
void draw_status(const std::string& text);
void clear_status();

/// Lines for people on standard output, in which all that could deceive them is escaped
/// (printable_lines()); names in them are printable(). A failure (a full disk) is Error(io).
void print(std::string_view text);

/// The same for an output that may be standard output.
void write_lines(OutputFile& out, std::string_view text);

/// Data for programs on standard output, unchanged. Errors: as print().
void print_data(std::string_view data);

}  // namespace attn
