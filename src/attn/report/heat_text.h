// Heat maps on a terminal.
#pragma once

#include <string>

#include "attn/report/heat_map.h"

namespace attn {

enum class TerminalColours { none, palette_256, truecolour };

struct TerminalStyle {
  TerminalColours colours = TerminalColours::none;
  std::size_t width = 80;  ///< columns that a line may fill; at least 20
};

/// The map as text, no line wider than the terminal. Cells are as wide as there is room for: with
/// their value in them, as squares of two columns, as one column (two rows a line, by half blocks,
/// in colour), or reduced. Without colour, values that do not fit are shades: · ░ ▒ ▓ █. Hidden
/// cells are ╱, NaN is ?. Several panels stand side by side where that fits.
std::string heat_text(const HeatMap& map, const TerminalStyle& style);

}  // namespace attn
