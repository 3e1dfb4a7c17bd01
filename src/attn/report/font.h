// Letters as grey pixels: FreeType over the one font that is built in, so that a picture looks the
// same on every machine, fonts installed or not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace attn {

/// Coverage of one letter, 0 to 255, row by row; left and top are its place relative to the origin
/// of the text, with y downwards.
struct Glyph {
  int left = 0, top = 0, width = 0, height = 0;
  const std::uint8_t* coverage = nullptr;  ///< valid during the call that hands it over
};

/// Calls draw for each letter of `text` at `size` pixels to the em, with kerning; gives the width
/// in pixels. What the font lacks is drawn as its box. Letters go from left to right, unshaped.
double set_text(const std::string& text, double size,
                const std::function<void(const Glyph&)>& draw);

}  // namespace attn
