// The shapes, dtypes and cost of a computation's results, determined from shapes and dtypes alone.
#pragma once

#include <optional>
#include <vector>

#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct PlannedOutput {
  Request request;
  Shape shape;
  DType dtype;
  std::size_t bytes = 0;
  double flops = 0;       ///< of this output alone; context: those of head_context
  bool streamed = false;  ///< passed on row by row and not kept in memory
  AxisList axes = {};     ///< of `shape`; empty: of a given tensor whose axes are not known

  /// The axis of `shape` with a row for each query; nullopt if there is none, or for a given
  /// tensor.
  std::optional<std::size_t> query_axis() const {
    return std::holds_alternative<Output>(request) ? axes.find(Axis::L) : std::nullopt;
  }
};

struct Plan {
  std::vector<PlannedOutput> outputs;  ///< in the order requested
  std::size_t bytes = 0;               ///< upper bound of the peak memory, including the tensors
  double flops = 0;                    ///< of everything that is computed for the outputs
  const char* path = nullptr;  ///< "kernels" or "reference"; nullptr: no scores are computed
  /// Why the reference path is used: the key of an option, "integers" or a gradient; or nullptr.
  const char* fallback_reason = nullptr;
};

/// The results and the cost of attend(). A product of (m, k) and (k, n) counts 2 m k n flops; an
/// element of inputs, scaled_scores and masked_scores counts 1, of weights 4 (subtract,
/// exponential, sum, divide). Memory: everything computed is assumed to be kept to the end, plus
/// one copy of the largest. Outputs in `offered` have consumers (attention/row_block.h); those that
/// the fused kernels can stream take no memory. Sizes saturate at 2^64 - 1. Errors: as
/// check_outputs().
Plan plan(const Inputs& in, const std::vector<Request>& outputs, const OutputSet& offered = {});

}  // namespace attn
