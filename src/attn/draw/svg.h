// Writes pictures as SVG.
#pragma once

#include <string>

#include "attn/draw/picture.h"

namespace attn {

/// A complete document. Texts stay text, in DejaVu Sans if installed, and are escaped.
std::string svg_of(const Picture& picture, const PictureStyle& style = {});

}  // namespace attn
