// Size and colours of the terminal.
#pragma once

#include <cstddef>
#include <string>

#include "attn/io/tensor_file.h"
#include "attn/report/heat_text.h"

namespace attn {

/// Columns of the terminal with this file descriptor; if unknown, COLUMNS or 80.
std::size_t terminal_width(int terminal);

/// The style for standard output. `when` is auto, always or never. With auto, there are no colours
/// if standard output is not a terminal, if NO_COLOR is set and not empty (no-color.org), or if
/// neither COLORTERM (truecolor, 24bit) nor TERM (-direct, 256color) indicates at least 256
/// colours. `width` 0: that of the terminal, COLUMNS or 80.
TerminalStyle terminal_style(const std::string& when, std::size_t width);

/// Errors: usage, if standard output is a terminal and the format is binary.
void refuse_binary_on_terminal(Format format);

}  // namespace attn
