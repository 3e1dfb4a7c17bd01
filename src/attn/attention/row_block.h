// Rows of outputs that are passed on as soon as they are finished, so that the whole output is
// never in memory; rounding them to the dtype of the results and counting overflows.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>

#include "attn/problem/inputs.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Rows [first, first + count) of an output, numbered in row-major order over all axes but the
/// last, which has `columns` elements. Rows are `stride` bytes apart.
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

/// The same block with the elements of `rows`, which must outlive it.
RowBlock in_place_of(const RowBlock& block, const Tensor& rows);

/// The same rows in another dtype; converted ones are stored in `kept`.
RowBlock converted(const RowBlock& block, DType dtype, Tensor& kept);

/// Receives each row of an output once, in any order, from several threads at once. The block is
/// valid during the call. An exception ends the computation.
using RowConsumer = std::function<void(const RowBlock&)>;
using RowConsumers = std::map<Output, RowConsumer>;

/// The dtype of a floating-point output: in.result, except that logsumexp keeps the precision of
/// the computation, as in FlashAttention and PyTorch, because 16 bits are too few for merging
/// results. So do delta and the statistics of rows, such as numbers of keys.
inline DType float_dtype_of(Output output, const Inputs& in) {
  const bool is_precise =
      output == Output::logsumexp || output == Output::delta || row_of(output).reduces;
  return is_precise ? in.compute : in.result;
}

/// Number of finite elements of each output that became infinite; the largest float16 is 65504.
using Overflows = std::map<Output, std::size_t>;

class Rounding {
 public:
  explicit Rounding(DType to) : to_(to) {}

  Tensor rounded(Output output, Tensor exact);
  /// Consumers that round rows and pass them on to `consumers`, which must outlive them, as must
  /// this object.
  RowConsumers before(const RowConsumers& consumers);

  Overflows overflows() const { return overflows_; }  ///< call when all outputs are rounded

 private:
  void count(Output output, const Tensor& exact, const Tensor& rounded);

  const DType to_;
  std::mutex mutex_;
  Overflows overflows_;
};

}  // namespace attn
