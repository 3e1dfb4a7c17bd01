// Shuffles, permutations and choices, which numpy.random.RandomState and default_rng make in the
// same way from different bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "attn/random/random_state.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Throws Error (data) for a tensor without axes.
void require_rows(const Tensor& tensor);

/// What choice() checks: p, which has one probability for each of `n` integers, and that `size` of
/// them can be drawn. Errors: data.
void check_choice(std::size_t n, std::size_t size, bool replace,
                  const std::optional<std::vector<double>>& p);

/// The elements (or rows) of `population` at `indices`, under the shape of `indices`.
Tensor picked(const Tensor& population, const Tensor& indices);

/// The number of elements. Errors: data, unless there is one axis.
std::int64_t one_axis_size(const Tensor& population);

/// p[0], p[0] + p[1], ..., divided by the last sum.
std::vector<double> cumulative(const std::vector<double>& p);

/// The first index whose cumulative sum exceeds u.
std::size_t inverse(const std::vector<double>& sums, double u);

/// Swaps each of `n` elements, from the last to element `first`, with one at or before it.
template <Rejection kRejection, class Bits, class Swap>
void fisher_yates(Bits& bits, std::size_t n, std::size_t first, Swap swap) {
  for (std::size_t i = n; i-- > first;) {
    const std::uint64_t j = bounded_draw<kRejection>(bits, i);
    if (i != j) swap(i, j);
  }
}

template <class Bits>
void shuffle_rows(Bits& bits, Tensor& tensor) {
  require_rows(tensor);
  if (tensor.size() == 0) return;  // uses no bits, even if there are (empty) rows
  const std::size_t rows = tensor.shape()[0], width = tensor.bytes() / rows;
  std::byte* const data = tensor.mutable_raw();
  fisher_yates<Rejection::masked>(bits, rows, 1, [&](std::size_t i, std::size_t j) {
    std::swap_ranges(data + i * width, data + (i + 1) * width, data + j * width);
  });
}

/// A shuffled arange(n), int64; empty if n < 0.
template <class Bits>
Tensor shuffled_range(Bits& bits, std::int64_t n) {
  Tensor result(DType::i64, {static_cast<std::size_t>(std::max<std::int64_t>(n, 0))});
  const auto values = result.mutable_data<std::int64_t>();
  std::iota(values.begin(), values.end(), std::int64_t{0});
  fisher_yates<Rejection::masked>(bits, values.size(), 1, [&](std::size_t i, std::size_t j) {
    std::swap(values[i], values[j]);
  });
  return result;
}

/// choice() with p, which is valid and has enough non-zero entries to draw without replacement.
template <class Bits>
Tensor weighted_choice(Bits& bits, const Shape& shape, bool replace, std::vector<double> p) {
  Tensor result(DType::i64, shape);
  const auto found = result.mutable_data<std::int64_t>();
  if (found.empty()) return result;
  if (replace) {
    const std::vector<double> sums = cumulative(p);
    for (std::int64_t& index : found)
      index = static_cast<std::int64_t>(inverse(sums, bits.next_double()));
    return result;
  }
  for (std::size_t count = 0; count < found.size();) {
    const std::vector<double> sums = cumulative(p);
    for (std::size_t missing = found.size() - count; missing > 0; --missing) {
      const std::size_t index = inverse(sums, bits.next_double());
      if (p[index] == 0) continue;  // already drawn
      p[index] = 0;
      found[count++] = static_cast<std::int64_t>(index);
    }
  }
  return result;
}

}  // namespace attn
