// Writes pictures as PDF 1.7 (ISO 32000-1).
#pragma once

#include <string>

#include "attn/draw/picture.h"

namespace attn {

/// A document of one page, of the picture's size or the width of `style` (72 points are 96 pixels).
/// Texts can be selected and searched; the characters that they use are embedded as Type 3 fonts.
std::string pdf_of(const Picture& picture, const PictureStyle& style = {});

}  // namespace attn
