// A drawing: flat shapes in order, the last on top. SVG and PNG are two ways to write the same one.
//
// Lengths are CSS pixels (96 to the inch), y runs downwards.
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

/// A rectangle: filled, or its outline where `outlined`.
struct BoxShape {
  Box box;
  Rgb colour;
  bool outlined = false;
};

enum class Anchor { start, middle, end };

struct TextShape {
  double x = 0, y = 0;  ///< the anchor, on the base line
  std::string text;     ///< UTF-8
  double size = 12;     ///< pixels to the em
  Anchor anchor = Anchor::start;
  bool upright = false;  ///< turned by 90 degrees, to be read from below
  Rgb colour;
};

struct Picture {
  double width = 0, height = 0;
  std::string title;  ///< for those who cannot see it
  std::vector<std::variant<BoxShape, CellsShape, TextShape>> shapes;
};

/// Widths of text as both formats draw it.
double text_width(const std::string& text, double size);

/// `text` in at most `width`, its end replaced by "…" where it is longer.
std::string cut_to_width(const std::string& text, double size, double width);

/// A document of its own; text stays text, in DejaVu Sans where there is one. Every string is
/// escaped: nothing of a token is ever markup.
std::string svg_of(const Picture& picture);

/// RGB, 8 bits, 192 pixels to the inch (two for each pixel of the picture).
std::string png_of(const Picture& picture);

}  // namespace attn
