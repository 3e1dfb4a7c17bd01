// Writes pictures as SVG.
#pragma once

#include <string>

#include "attn/report/picture.h"

namespace attn {

/// In pictures with more cells, matrices are embedded as PNG with a pixel per cell.
constexpr std::size_t kMaxVectorCells = 10'000;

/// A complete document. Texts stay text, in DejaVu Sans if installed, and are escaped.
std::string svg_of(const Picture& picture, const PictureStyle& style = {});

}  // namespace attn
