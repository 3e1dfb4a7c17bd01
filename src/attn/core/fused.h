// The fused path: which problems the kernels (kernel/) compute, and how they are passed on.
//
// The kernels compute everything from scores to head_context in one pass over the keys. Tests
// compare them with the same stages one by one (core/tensor_ops.h).
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/core/output_table.h"
#include "attn/core/row_block.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The key of the first option that the kernels do not support; nullptr where they compute this
/// problem. An option that they do not know is one of them, so that none is ignored by mistake. The
/// options, and the reasons: docs/semantics.md, "Numbers".
const char* fallback_reason(const Inputs& in, const Options& options);

/// Whether the rows of an output can be passed on as they are finished and need not be kept, when
/// these outputs are computed: those of score matrices that no other output is computed from.
bool is_streamed(Output output, const OutputSet& outputs);

/// What is wanted from the kernels.
struct FusedRequest {
  OutputSet kept;                                       ///< as whole tensors
  std::array<const RowSink*, kOutputs.size()> sinks{};  ///< of score matrices; nullptr: none

  bool wants(Output output) const {
    return kept.contains(output) || sinks[index_of(output)] != nullptr;
  }
};

/// The outputs that were kept, with all axes, and logsumexp.
using FusedOutputs = std::array<std::optional<Tensor>, kOutputs.size()>;

/// `queries` (B, H, rows, D) and `keys` (B, G, S, Dk), the past and the appended ones included, all
/// of dtype in.compute; `values` (B, G, S, Dv) likewise where head_context is wanted.
FusedOutputs attend_fused(const Tensor& queries, const Tensor& keys, const Tensor& values,
                          const Inputs& in, const Options& options, const FusedRequest& request);

/// Sets the number of threads for the computations of the calling thread; 0: one for each processor
/// available to it. The results do not depend on it.
void set_threads(std::size_t threads);

}  // namespace attn
