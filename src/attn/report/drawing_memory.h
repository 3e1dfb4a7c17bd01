// What it takes to draw, known from shapes alone: nothing is drawn.
//
// Bytes that are in memory at once, at most, beside the tensors. `shape` is what is drawn: (L, S),
// or with axes in front, each of whose matrices is a panel. Sizes beyond 2^63 are told as 2^63.
#pragma once

#include <cstddef>

#include "attn/base/dtype.h"
#include "attn/report/heat_text.h"
#include "attn/tensor/shape.h"

namespace attn {

std::size_t bytes_of_text(const Shape& shape, const TerminalStyle& style);
/// `label` is the widest of the rows' and columns' (text_width() at 12 pixels to the em).
std::size_t bytes_of_svg(const Shape& shape, double label);
std::size_t bytes_of_png(const Shape& shape, double label);

/// A page of at most `most` bytes.
std::size_t bytes_of_page(const Shape& shape, DType dtype, std::size_t most);

}  // namespace attn
