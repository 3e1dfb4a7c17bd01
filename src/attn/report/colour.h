// Colour maps for values, legible in print, in greyscale and with colour blindness.
//
// Each map interpolates a few anchors in OKLab (Ottosson 2020), which is perceptually uniform, so
// that pictures do not show edges that are not in the values. The lightness of `paper` and `night`
// is monotonic. `diverging` is blue below and orange above zero, which red-green colour blindness
// distinguishes.
#pragma once

#include <cstdint>

namespace attn {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Rgb&) const = default;
};

enum class ColourMap {
  paper,      ///< white (least) to dark blue (most), for light backgrounds
  night,      ///< near black (least) to pale yellow (most), for dark backgrounds
  diverging,  ///< blue (negative), white (0), orange (positive)
};

/// The colour at `position`, from 0 (least) to 1 (most); clamped.
Rgb colour_at(ColourMap map, double position);

/// Black or white, whichever has more contrast on `background` (relative luminance, WCAG 2.1).
Rgb ink_on(Rgb background);

/// The nearest entry, 16 to 255, of the 256-colour palette of terminals.
int nearest_of_256(Rgb colour);

}  // namespace attn
