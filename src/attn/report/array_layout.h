// The layout of a printed array: brackets, line breaks, and '...' for omitted elements.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

struct ArrayLayout {
  Shape shape;              ///< no axis is empty
  bool summarised = false;  ///< axes longer than 2 * edgeitems show only their ends
  std::size_t edgeitems = 3;
  std::string separator = " ";  ///< between elements; ", " in a repr
  std::size_t indent = 0;       ///< columns before the first bracket
  long linewidth = 75;          ///< greatest width of a line
};

/// Row-major indices of the printed elements, in order.
std::vector<std::size_t> shown_elements(const ArrayLayout& layout);

/// `words` are the texts of the printed elements. The last axis fills lines and wraps; each row of
/// a matrix starts a new line; each further axis adds an empty line between blocks.
std::string bracketed(const std::vector<std::string>& words, const ArrayLayout& layout);

}  // namespace attn
