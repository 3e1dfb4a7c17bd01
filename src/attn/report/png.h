// Writes pictures as PNG. Text is drawn by FreeType with the embedded font, so that pictures are
// the same on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "attn/report/picture.h"

namespace attn {

/// A rendered character: coverage from 0 to 255 in rows. left and top are relative to the origin of
/// the text, with y downwards.
struct Glyph {
  int left = 0, top = 0, width = 0, height = 0;
  const std::uint8_t* coverage = nullptr;  ///< valid during the callback
};

/// Calls `draw`, if set, for each character of `text` at `size` pixels per em, with kerning.
/// Returns the width in pixels. Characters that the font lacks are drawn as a box. Left to right,
/// without shaping.
double render_text(const std::string& text, double size,
                   const std::function<void(const Glyph&)>& draw);

/// 8-bit RGB, 192 pixels per inch (two for each pixel of the picture).
std::string png_of(const Picture& picture);

}  // namespace attn
