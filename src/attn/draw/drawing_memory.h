// Upper bounds on the memory that rendering takes, from shapes alone.
//
// Each function returns the peak in bytes, without the tensors. `shape` is (L, S), with any leading
// axes, whose matrices are panels. Results are at most 2^63.
#pragma once

#include <cstddef>

#include "attn/base/dtype.h"
#include "attn/draw/heat_text.h"
#include "attn/draw/picture.h"
#include "attn/tensor/shape.h"

namespace attn {

std::size_t bytes_of_text(const Shape& shape, const TerminalStyle& style);
/// `label` is the width of the widest row or column label (text_width() at 12 pixels per em).
std::size_t bytes_of_svg(const Shape& shape, double label);
std::size_t bytes_of_pdf(const Shape& shape, double label);
std::size_t bytes_of_png(const Shape& shape, double label, const PictureStyle& style);

/// For a page of at most `max_bytes` that is made with up to `threads` threads. `steps` are
/// raw_bytes_of_steps().
std::size_t bytes_of_page(const Shape& shape, DType dtype, std::size_t max_bytes,
                          std::size_t threads, std::size_t steps = 0);

}  // namespace attn
