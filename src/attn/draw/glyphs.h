// Draws text with FreeType, for measuring and for PNG and PDF files.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace attn {

/// A rendered character: coverage from 0 to 255 in rows. left and top are relative to the origin of
/// the text, with y downwards.
struct Glyph {
  int left = 0, top = 0, width = 0, height = 0;
  const std::uint8_t* coverage = nullptr;  ///< valid during the callback
};

/// Calls `draw`, if set, for each character of `text` at `size` pixels per em, with kerning.
/// Returns the width in pixels. Left to right, without shaping.
///
/// The font is the embedded one, so that text is the same on every machine. A character that it
/// lacks is drawn with an installed font that has it (draw/installed_fonts.h), or else as a box
/// with its code point in hexadecimal.
double render_text(const std::string& text, double size,
                   const std::function<void(const Glyph&)>& draw);

/// A character that render_text() draws, and how far its origin is from that of the text.
struct PlacedGlyph {
  std::uint32_t code = 0;
  double x = 0;  ///< thousandths of an em
};
std::vector<PlacedGlyph> placed_glyphs(const std::string& text);

/// A step along an outline: to a point, where a curve is a cubic Bezier curve with two control
/// points before it. In thousandths of an em, y upwards.
struct PathStep {
  enum class Kind { move, line, curve } kind;
  std::array<double, 6> points = {};  ///< x, y of one or three points
};

/// What render_text() draws for a character: closed paths, filled by the nonzero winding rule.
struct GlyphOutline {
  double advance = 0;  ///< thousandths of an em
  std::vector<PathStep> path;
};
GlyphOutline outline_of(std::uint32_t code);

}  // namespace attn
