// What a computation will take, known from shapes alone: nothing is computed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct PlannedOutput {
  std::string name;
  Shape shape;
  DType dtype;
  std::size_t bytes = 0;
  double flops =
      0;  ///< of this stage alone, without those that it needs (context: as head_context)
  bool streamed = false;  ///< handed on row by row: nothing of it is kept in memory
};

struct Plan {
  std::vector<PlannedOutput> outputs;  ///< in the order asked
  std::size_t bytes = 0;  ///< an upper bound of what is in memory at once, the tensors included
  double flops = 0;       ///< of all stages that the outputs need, each once
  const char* path = nullptr;     ///< "kernels" or "reference"; nullptr: no scores are needed
  const char* kept_by = nullptr;  ///< with the reference: the option whose it is, or "integers"
};

/// What attend() would give and take. A product of (m, k) and (k, n) counts 2 m k n operations;
/// each element of inputs, scaled_scores and masked_scores counts 1, of weights 4 (subtract,
/// exponential, sum, divide). Every stage that is needed stays in memory to the end; the bound adds
/// room for copies. Outputs that are in `offered` have sinks (core/row_block.h): those that the
/// kernels can hand on as rows are streamed and take no memory. Sizes beyond 2^64 - 1 are told as
/// 2^64 - 1. Errors: as check_outputs().
Plan plan(const Inputs& in, const TensorMap& tensors, const Options& options,
          const std::vector<std::string>& outputs, const std::set<std::string>& offered = {});

/// Of bytes: what is more than a size can be is the largest size.
std::size_t sum(std::size_t a, std::size_t b);
std::size_t product(const Shape& factors);

}  // namespace attn
