// Gradients of attention: the derivatives of a number with respect to the inputs of an
// AttentionProblem, from its derivatives with respect to context and logsumexp (FlashAttention,
// arXiv:2205.14135, appendix B; FlashAttention-2, arXiv:2307.08691). With x = masked / temperature,
// A the weights after dropout and delta_i = sum_d grad_context[i, d] context[i, d]:
//
//   grad_V       = A^T grad_context
//   grad_A       = grad_context V^T
//   grad_x       = weights (dropout grad_A - delta + grad_logsumexp)
//   grad_bias    = grad_x / temperature, summed over the axes along which the bias is broadcast
//   grad_scaled  = grad_x / temperature * (1 - (y / c)^2), y the capped score
//   grad_Q       = scale head_scale grad_scaled K
//   grad_K       = scale head_scale grad_scaled^T Q
//   grad_sinks_h = sum_i exp(sink_h - logsumexp_i) (grad_logsumexp_i - delta_i)
//
// With a softcap after the biases, grad_bias has its factor, too. Gradients of K and V are
// summed over the query heads that share them. reference.h defines these in plain loops.
//
// Weights are computed again from the logsumexp, block by block, so memory is O((L + S) (D + Dv)).
// A key that a query does not see, or whose weight underflows to 0, gets nothing from it and adds
// nothing to its gradient, even if an element is NaN; nor does a query whose logsumexp is -inf.
//
// The bytes of the results do not depend on the number of threads, and those of a batch item not on
// the other items, unless a bias or sinks are shared by the items.
#pragma once

#include <array>
#include <cstddef>

#include "attn/kernel/isa.h"
#include "attn/kernel/problem.h"
#include "attn/kernel/thread_pool.h"

namespace attn::kernel {

template <class T>
struct BackwardProblem {
  AttentionProblem<T> problem;
  Operand grad_context;               ///< (B, H, L, Dv)
  const T* logsumexp = nullptr;       ///< (B, H, L), contiguous, of the forward pass
  const T* remainder = nullptr;       ///< that of the forward pass; nullptr: all 0
  const T* delta = nullptr;           ///< (B, H, L), contiguous
  const T* grad_logsumexp = nullptr;  ///< (B, H, L), contiguous; nullptr: all 0
};

/// Where results are written. Those with nullptr are not computed.
template <class T>
struct BackwardResults {
  T* q = nullptr;              ///< (B, H, L, D), contiguous
  T* k = nullptr;              ///< (B, G, S, D), contiguous
  T* v = nullptr;              ///< (B, G, S, Dv), contiguous
  std::array<T*, 2> biases{};  ///< by the strides of problem.biases; added to what is there
  T* sinks = nullptr;          ///< (H)
};

/// Computes `gradients`; T is float or double. Gradients of queries are summed in blocks of
/// Geometry::backward_keys keys, in ascending order, those of keys and values in blocks of
/// kBackwardRows queries, by heads and then in descending order. Throws Error (internal) if H is
/// not a multiple of G, and std::bad_alloc.
template <class T>
void attend_backward(const BackwardProblem<T>& problem, const BackwardResults<T>& gradients,
                     ThreadPool& pool, Isa isa = active_isa());

/// Bytes that attend_backward() uses for each thread. Of `problem`, only D, Dv and softcap matter.
template <class T>
std::size_t backward_bytes(const AttentionProblem<T>& problem, Isa isa = active_isa());

}  // namespace attn::kernel
