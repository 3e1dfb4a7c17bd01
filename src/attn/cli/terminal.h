// What a terminal can show.
#pragma once

#include <cstddef>
#include <string>

#include "attn/io/tensor_file.h"
#include "attn/report/heat_text.h"

namespace attn {

/// The columns of the terminal behind a file descriptor; where it does not tell, COLUMNS, or 80.
std::size_t terminal_width(int terminal);

/// Of the terminal on standard output. `when` is auto, always or never. Automatic: no colour when
/// standard output is no terminal, NO_COLOR is set and not empty (no-color.org), or TERM is
/// missing, "dumb" or one of the few with 16 colours or fewer; otherwise as many as COLORTERM
/// (truecolor, 24bit) or TERM (-direct, 256color) promise. `width` 0: the terminal's own, or
/// COLUMNS, or 80.
TerminalStyle terminal_style(const std::string& when, std::size_t width);

/// Errors: usage, if standard output is a terminal and the format is binary.
void refuse_binary_on_terminal(Format format);

}  // namespace attn
