// A gradient of a job, or delta, as a kernel with a mistake in its backward pass computes it.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "attn/diagnose/variant.h"
#include "attn/problem/inputs.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A key/value head of a batch item, with the query heads that share it.
struct KvHead {
  std::size_t item, head;
  bool operator==(const KvHead&) const = default;
};

/// Only with dot products and softmax over keys. Everything from scores to head_context is computed
/// for one query head at a time, with the fused kernels or, where they do not support a change, for
/// some queries at a time. Thread-safe.
class BackwardPass {
 public:
  /// `given` is a job in f64 and `attention` its attention_only() with the same rows. `given` must
  /// outlive this object.
  BackwardPass(const Inputs& given, const Variant& attention, const Request& of);

  /// Whether the gradient of each KvHead depends on this one only.
  bool is_by_head() const;

  /// `variant` is `attention` with other masks, biases, sinks, dropout, scale or softcap, and with
  /// changes of the backward pass. In the layout of the user, f64. With `heads`, only their
  /// elements are computed; only if is_by_head(). Errors: data; usage, if this job does not have
  /// the gradient.
  Tensor gradient(const Variant& variant, const std::vector<KvHead>* heads = nullptr) const;

 private:
  /// Of a query head.
  struct Forward {
    Tensor logsumexp;  ///< (1, 1, R), natural
    Tensor context;    ///< (1, 1, R, Dv)
  };
  /// What the job itself computes for a query head, when it is first used.
  struct OfJob {
    std::mutex mutex;
    std::optional<Forward> forward;
    std::optional<Tensor> row_sums;
  };
  class Ops;

  const Inputs& given_;
  const Variant attention_;
  const Request of_;
  std::optional<Inputs> job_;  ///< attention_, checked; nullopt if there are no such derivatives
  mutable std::vector<OfJob> of_job_;  ///< of (B, H)
};

/// An upper bound of the memory of a BackwardPass and of calls in `threads` threads, in bytes.
std::size_t bytes_of_backward_pass(const Inputs& given, std::size_t threads);

}  // namespace attn
