// Where an array's elements stand on the page: brackets, line breaks, and '...' for what is left
// out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

struct ArrayLayout {
  Shape shape;              ///< no axis is empty
  bool summarised = false;  ///< axes longer than 2 * edgeitems show their ends only
  std::size_t edgeitems = 3;
  std::string separator = " ";  ///< between elements; ", " in a repr
  std::size_t indent = 0;       ///< columns before the first bracket
  long linewidth = 75;          ///< columns that a line may fill
};

/// Row-major indices of the elements that are shown, in the order in which they are.
std::vector<std::size_t> shown_elements(const ArrayLayout& layout);

/// `words` are the texts of the elements shown. The last axis fills lines and wraps where they are
/// full; rows of a matrix start lines of their own; each axis more puts one empty line between.
std::string bracketed(const std::vector<std::string>& words, const ArrayLayout& layout);

}  // namespace attn
