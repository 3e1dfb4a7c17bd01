// Rows of outputs that are passed on when they are finished, so that the whole output is never in
// memory.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

/// Rows `first` to `first + count` of an output, its rows counted in row-major order over all axes
/// but the last, which has `columns` elements; rows are `stride` bytes apart.
struct RowBlock {
  std::size_t first = 0, count = 0, columns = 0;
  DType dtype = DType::f64;
  const std::byte* data = nullptr;
  std::size_t stride = 0;
  bool may_hold_nan = true;  ///< false: no element is NaN

  const std::byte* row(std::size_t i) const { return data + i * stride; }
};

/// All rows of a tensor, which must outlive the block.
RowBlock rows_of(const Tensor& tensor);

/// A copy of the rows, (count, columns).
Tensor copied(const RowBlock& block);

/// `block` with other elements, from `rows`, which must outlive it.
RowBlock in_place_of(const RowBlock& block, const Tensor& rows);

/// The same rows in another dtype; converted ones are stored in `kept`.
RowBlock converted(const RowBlock& block, DType dtype, Tensor& kept);

/// Receives each row of an output once, in any order, from several threads at once. The block is
/// valid during the call. An exception ends the computation.
using RowSink = std::function<void(const RowBlock&)>;
using RowSinks = std::map<std::string, RowSink>;  ///< by the output's name

}  // namespace attn
