// The fused path: which problems the kernels (kernel/) support, and how they are called.
//
// The kernels compute everything from scores to head_context in one pass over the keys. Tests
// compare them with the individual operations (attention/tensor_ops.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "attn/attention/row_block.h"
#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The key of the first option that the kernels do not support; nullptr if they support this
/// problem. An option counts as unsupported unless it is listed as supported, so that none is
/// ignored by mistake. docs/semantics.md, "Numbers", gives the reasons.
const char* fallback_reason(const Inputs& in);

/// Whether an output can be streamed if `outputs` are computed: only a score matrix that no other
/// output depends on.
bool is_streamed(Output output, const OutputSet& outputs);

/// The results requested from the kernels.
struct FusedRequest {
  OutputSet kept;  ///< as whole tensors
  std::array<const RowConsumer*, kOutputs.size()>
      consumers{};         ///< of score matrices; nullptr: none
  bool remainder = false;  ///< of logsumexp, for the backward kernel

  bool wants(Output output) const {
    return kept.contains(output) || consumers[index_of(output)] != nullptr;
  }
};

/// The outputs that were kept, with all axes, and logsumexp.
using FusedOutputs = std::array<std::optional<Tensor>, kOutputs.size()>;

struct FusedResult {
  FusedOutputs outputs;
  /// Flat indices of rows of (B, H, rows) that the reference path has to compute: the kernels
  /// multiply scores by log2(e), so a finite score above 69 % of the largest number overflows.
  /// `outputs` holds NaN for these rows, and consumers did not receive them.
  std::vector<std::size_t> overflowed;
  std::optional<Tensor> remainder;  ///< (B, H, rows), that of kernel::Results
};

/// `queries` (B, H, rows, D), `keys` (B, G, S, Dk) and, if head_context is requested, `values` (B,
/// G, S, Dv) are of dtype in.compute. Keys and values include past and appended ones.
FusedResult attend_fused(const Tensor& queries, const Tensor& keys, const Tensor& values,
                         const Inputs& in, const FusedRequest& request);

/// From now on, the kernels add the number of rows (B * H * queries) that they have computed to
/// `rows`, block by block; with nullptr they do not count.
void count_rows(std::atomic<std::size_t>* rows);

}  // namespace attn
