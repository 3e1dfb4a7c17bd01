// Writes pictures as PNG.
#pragma once

#include <string>

#include "attn/report/picture.h"

namespace attn {

/// 8-bit RGB, 192 pixels per inch (two for each pixel of the picture).
std::string png_of(const Picture& picture);

}  // namespace attn
