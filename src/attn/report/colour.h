// Colours for numbers: three maps that survive print, grey scale and every kind of colour
// blindness.
//
// Each map is a handful of anchors, interpolated in OKLab (Ottosson 2020), where equal steps look
// equal, so that nothing in the picture has an edge that the numbers have not. In `paper` and
// `night` lightness runs one way from end to end. `diverging` is blue below and orange above zero,
// the pair that red-green colour blindness leaves apart.
#pragma once

#include <cstdint>

namespace attn {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Rgb&) const = default;
};

enum class ColourMap {
  paper,      ///< white (least) to dark blue (most): on white ground
  night,      ///< near black (least) to pale yellow (most): on dark ground
  diverging,  ///< blue (-1) over white (0) to orange (+1); its middle is 0
};

/// The colour at `place`, from 0 (least) to 1 (most); places beyond are the ends.
Rgb colour_at(ColourMap map, double place);

/// Black or white: whichever reads better on `ground` (relative luminance as WCAG 2.1 defines it).
Rgb ink_on(Rgb ground);

/// The entry of the 256-colour palette of terminals (16 to 255) that is nearest to a colour.
int nearest_of_256(Rgb colour);

}  // namespace attn
