// Heat maps on a terminal.
#pragma once

#include <string>

#include "attn/draw/heat_map.h"

namespace attn {

enum class TerminalColours { none, palette_256, truecolour };

struct TerminalStyle {
  TerminalColours colours = TerminalColours::none;
  std::size_t width = 80;  ///< columns; at least 20
};

/// The map as text, with no line wider than the terminal. Cells have the first of these forms that
/// fits: their value, two columns, one column (with colour and without NaN, half blocks show two
/// rows per line), or a reduced map. Without colour, cells that do not show their value are shades:
/// · ░ ▒ ▓ █, and for negative values · - = ≡ #. Hidden cells are ╱, cells of kind `zero` are
/// blank, and NaN is '?'. Panels of one group are placed side by side where they fit; a group
/// starts a new line.
std::string heat_text(const HeatMap& map, const TerminalStyle& style);

}  // namespace attn
