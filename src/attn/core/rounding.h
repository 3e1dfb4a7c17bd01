// Outputs rounded once, at the end, to the dtype that results have, and what is too large for it.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "attn/core/row_block.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// How many finite elements rounding made infinite, by the output's name: float16 ends at 65504.
using Overflows = std::map<std::string, std::size_t>;

class Rounding {
 public:
  explicit Rounding(DType to) : to_(to) {}

  Tensor rounded(const std::string& name, const Tensor& output);
  /// Sinks whose rows are rounded on their way to `sinks`, both valid while this is.
  RowSinks before(const RowSinks& sinks);

  Overflows overflows() const { return overflows_; }  ///< when all has been rounded

 private:
  void count(const std::string& name, const Tensor& exact, const Tensor& rounded);

  const DType to_;
  std::mutex mutex_;
  Overflows overflows_;
};

}  // namespace attn
