// Writes pictures as PDF 1.7 (ISO 32000-1).
#pragma once

#include <string>

#include "attn/report/picture.h"

namespace attn {

/// A document of one page, of the size of the picture (72 points are 96 pixels). Texts can be
/// selected and searched; the characters that they use are embedded as a Type 3 font.
std::string pdf_of(const Picture& picture, const PictureStyle& style = {});

}  // namespace attn
