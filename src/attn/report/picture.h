// A picture: shapes in drawing order, written as SVG or PNG.
//
// Lengths are CSS pixels (96 per inch); y increases downwards.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "attn/report/colour.h"
#include "attn/report/heat_map.h"

namespace attn {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

/// A matrix of coloured cells without gaps. Hidden cells are hatched, NaN is crossed out.
struct CellsShape {
  Box box;
  std::size_t rows = 0, columns = 0;
  std::vector<Rgb> colours;  ///< row-major
  std::vector<CellKind> kinds;
};

/// A filled rectangle, or its outline.
struct BoxShape {
  Box box;
  Rgb colour;
  bool outlined = false;
};

enum class Anchor { start, middle, end };

struct TextShape {
  double x = 0, y = 0;  ///< position of the anchor on the baseline
  std::string text;     ///< UTF-8
  double size = 12;     ///< pixels per em
  Anchor anchor = Anchor::start;
  bool vertical = false;  ///< rotated by 90 degrees, from bottom to top
  Rgb colour;
};

struct Picture {
  double width = 0, height = 0;
  std::string title;  ///< for screen readers
  std::vector<std::variant<BoxShape, CellsShape, TextShape>> shapes;
};

/// Width of text in pixels, in both formats.
double text_width(const std::string& text, double size);

/// `text` if it fits `width`, otherwise as many of its grapheme clusters as fit, followed by "…".
std::string cut_to_width(const std::string& text, double size, double width);

}  // namespace attn
