// Which options and inputs hide a key from a query, so that a page can name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/problem/inputs.h"

namespace attn {

struct HidingOptions {
  std::vector<std::vector<std::string>> sets;  ///< of keys of the job; the first one is empty
  std::size_t items = 1, heads = 1;            ///< 1 if batch items or heads do not differ
  std::size_t row_size = 0;                    ///< S
  /// (items, heads, R, S): the index in `sets` of what hides the key.
  std::vector<std::uint8_t> of;
};

/// The most elements of `of`: of larger problems, this is not computed.
inline constexpr std::size_t kMostHidingOptions = std::size_t{1} << 22;

/// The memory that this takes for each of them.
inline constexpr std::size_t kHidingBytes = 16;

/// Of in.rows. What a mask rule, a tree or blocks hide is named only where chunks and sink tokens
/// do not hide the key. Nullopt if there are too many elements or sets.
std::optional<HidingOptions> hiding_options(const Inputs& in);

}  // namespace attn
