// Writes pictures as PNG.
#pragma once

#include <string>

#include "attn/draw/picture.h"

namespace attn {

/// 8-bit RGB with its resolution. Text is rendered (draw/glyphs.h).
std::string png_of(const Picture& picture, const PictureStyle& style);

/// A pixel per cell, with every second level of the picture's palette, which compresses better.
/// Hidden cells and zeros are transparent.
std::string png_of_cells(const CellsShape& shape, const Picture& picture);

}  // namespace attn
