// Colour maps for values, legible in print, in greyscale and with colour blindness.
//
// Each map interpolates a few anchors in OKLab (Ottosson 2020), which is perceptually uniform, so
// that pictures do not show edges that are not in the values. The lightness of `paper` and `night`
// is monotonic. The diverging maps are blue below and orange above zero, which red-green colour
// blindness distinguishes, and symmetric in lightness.
#pragma once

#include <cstdint>

namespace attn {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Rgb&) const = default;
};

enum class ColourMap {
  paper,            ///< white (least) to dark blue (most), for light backgrounds
  night,            ///< near black (least) to pale yellow (most), for dark backgrounds
  diverging,        ///< blue (negative), white (0), orange (positive)
  diverging_night,  ///< pale blue (negative), near black (0), pale orange (positive)
};

/// The colour at `position`, from 0 (least) to 1 (most); clamped.
Rgb colour_at(ColourMap map, double position);

/// The colours of a picture besides those of values.
struct Theme {
  Rgb ground, ink, soft_ink, frame;
  Rgb hatch;  ///< lines of hidden cells, dots of zeros
  Rgb nan;
  ColourMap sequential, diverging;
};
const Theme& theme(bool dark);

/// Black or white, whichever has more contrast on `background` (relative luminance, WCAG 2.1).
Rgb ink_on(Rgb background);

/// The colour at `position` of a map for dark backgrounds, as an entry of the 256-colour palette of
/// terminals. The palette is too coarse for the nearest entry: hues would jump.
int palette_256(ColourMap map, double position);

/// Entries 16 to 255.
Rgb entry_of_256(int index);

}  // namespace attn
