// A picture: shapes in drawing order, written as SVG, PDF or PNG.
//
// Lengths are CSS pixels (96 per inch); y increases downwards.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attn/draw/colour.h"
#include "attn/draw/heat_map.h"

namespace attn {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

/// Cells are levels, 0 to kLevels - 1, of the picture's palette, or one of these codes.
constexpr std::uint8_t kLevels = 125;  // odd, so that 0 on a signed scale is a level
constexpr std::uint8_t kHiddenCell = kLevels, kZeroCell = kLevels + 1, kNanCell = kLevels + 2;

/// A matrix of coloured cells without gaps. Hidden cells are hatched, zeros are dotted, NaN is
/// crossed out.
struct CellsShape {
  Box box;
  std::size_t rows = 0, columns = 0;
  std::vector<std::uint8_t> cells;  ///< row-major
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

/// How the user wants a picture.
struct PictureStyle {
  bool dark = false;
  std::optional<double> width;  ///< in pixels; if not set, as the contents require
  int dpi = 192;                ///< of PNG
};

struct Picture {
  double width = 0, height = 0;
  std::string title;  ///< for screen readers
  Theme theme;
  std::array<Rgb, kLevels> palette;
  std::vector<std::variant<BoxShape, CellsShape, TextShape>> shapes;
};

/// In pictures with more cells, SVG and PDF files embed matrices as images with a pixel per cell.
constexpr std::size_t kMaxVectorCells = 10'000;

/// The cells of all matrices.
std::size_t cells_of(const Picture& picture);

/// Adjacent cells of a row with the same code.
struct CellRun {
  std::uint8_t code;
  std::uint32_t first, count;  ///< indices of CellsShape::cells
};

/// From top to bottom and left to right.
std::vector<CellRun> runs_of(const CellsShape& shape);

/// With at most two digits after the point.
std::string length_text(double value);

/// Side of the squares in which hatches, dots and crosses repeat. Smaller cells that are NaN are
/// filled.
constexpr double kPatternSize = 6;

/// Width of text in pixels, in all formats.
double text_width(const std::string& text, double size);

/// `text` if it fits `width`, otherwise as many of its grapheme clusters as fit, followed by "…".
std::string cut_to_width(const std::string& text, double size, double width);

}  // namespace attn
