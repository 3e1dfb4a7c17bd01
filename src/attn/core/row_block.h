// Outputs that are handed on row by row as they are finished, and never stand in memory whole.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

/// Rows `first` to `first + count` of an output, its rows counted in row-major order over all axes
/// but the last, which has `columns` elements; one row begins `stride` bytes behind the one before.
struct RowBlock {
  std::size_t first = 0, count = 0, columns = 0;
  DType dtype = DType::f64;
  const std::byte* data = nullptr;
  std::size_t stride = 0;
  bool may_hold_nan = true;  ///< false: it is known that no element is NaN

  const std::byte* row(std::size_t i) const { return data + i * stride; }
};

/// All rows of a tensor; valid while it lives.
RowBlock rows_of(const Tensor& tensor);

/// The rows side by side, (count, columns).
Tensor copied(const RowBlock& block);

/// The block that `rows`, as many as its own, stand for; valid while they live.
RowBlock in_place_of(const RowBlock& block, const Tensor& rows);

/// The same rows in another dtype, in `kept` where they have to be converted.
RowBlock converted(const RowBlock& block, DType dtype, Tensor& kept);

/// Takes the rows of one output: every row once, in any order, from several threads at once. A
/// block is valid during the call. What it throws ends the computation.
using RowSink = std::function<void(const RowBlock&)>;
using RowSinks = std::map<std::string, RowSink>;  ///< by the output's name

}  // namespace attn
