// Rounding of outputs to the dtype of the results, and the number of overflows.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "attn/core/inputs.h"
#include "attn/core/output_table.h"
#include "attn/core/row_block.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The dtype of an output of floats: that of results, but logsumexp keeps the precision of the
/// computation, as in FlashAttention and PyTorch. Rounded to 16 bits it could not merge results.
inline DType float_dtype_of(Output output, const Inputs& in) {
  return output == Output::logsumexp ? in.compute : in.result;
}

/// Number of finite elements that became infinite, by output; the largest float16 is 65504.
using Overflows = std::map<std::string, std::size_t>;

class Rounding {
 public:
  explicit Rounding(DType to) : to_(to) {}

  Tensor rounded(const std::string& name, const Tensor& output);
  /// Sinks that round rows and pass them on to `sinks`, which must outlive them, as must this
  /// object.
  RowSinks before(const RowSinks& sinks);

  Overflows overflows() const { return overflows_; }  ///< call when all outputs are rounded

 private:
  void count(const std::string& name, const Tensor& exact, const Tensor& rounded);

  const DType to_;
  std::mutex mutex_;
  Overflows overflows_;
};

}  // namespace attn
