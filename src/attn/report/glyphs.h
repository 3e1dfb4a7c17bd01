// Draws text with FreeType, for measuring and for PNG files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

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
/// lacks is drawn with an installed font that has it (report/installed_fonts.h), or else as a box
/// with its code point in hexadecimal.
double render_text(const std::string& text, double size,
                   const std::function<void(const Glyph&)>& draw);

}  // namespace attn
