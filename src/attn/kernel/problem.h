// What the fast path computes, as arrays that stand elsewhere.
//
//   masked[i, j] = softcap(scale * q_i . k_j) + alibi + bias,   -inf where key j is hidden from i
//   weights      = exp(masked - logsumexp),   logsumexp_i = log(sum_j exp(masked[i, j]))
//   context      = weights V
//
// Letters: B batch, H query heads, G key/value heads (H % G == 0; query head h reads key/value head
// h / (H / G)), L queries, S keys, D query/key width, Dv value width. Any of them may be 0.
//
// Key j is visible from the query at position i when all of these hold:
//   j < lengths[b] · causal: j <= i + offset · window: i + offset - left <= j <= i + offset + right
//   mask[b, h, i, j] != 0 · bias[b, h, i, j] != -inf
// A hidden key contributes nothing, whatever stands in its K and V; a visible NaN goes through. A
// query that sees no key has context 0, weights 0 and logsumexp -inf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "attn/tensor/dtype.h"

namespace attn::kernel {

/// Steps between neighbours along each axis, in elements; 0 repeats one element along an axis.
struct Strides {
  std::int64_t batch = 0, head = 0, row = 0, column = 1;
};

/// f64, f32, f16 or bf16 elements; whatever is not T is converted while it is packed.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Strides strides;
};

/// T is float or double: what everything is computed in.
template <class T>
struct Problem {
  std::size_t B = 1, H = 1, G = 1, L = 0, S = 0, D = 0, Dv = 0;
  Operand q, k, v;  ///< (B, H, L, D), (B, G, S, D), (B, G, S, Dv)

  T scale = 1;               ///< any sign
  T softcap = 0;             ///< c > 0: c * tanh(x / c); 0: off
  const T* alibi = nullptr;  ///< (H) slopes m, adding -m * |i + offset - j| (arXiv:2108.12409)
  const T* bias = nullptr;   ///< (B, H, L, S), added
  Strides bias_strides;      ///< its row is the query's position
  const std::uint8_t* mask = nullptr;  ///< (B, H, L, S), nonzero: may be seen
  Strides mask_strides;                ///< its row is the query's position

  bool causal = false;
  std::int64_t left = -1, right = -1;       ///< window; -1: open
  std::int64_t offset = 0;                  ///< of causal, window and alibi
  const std::int64_t* positions = nullptr;  ///< (L) of each query; none: 0, 1, ...
  const std::int64_t* lengths = nullptr;    ///< (B) visible keys; none: S
};

/// Rows `first` to `first + count` of the (B * H * L, S) matrices of raw scores (q . k alone) and
/// weights; nullptr for the one that was not asked for. Valid during the call; context and
/// logsumexp of these rows are there already.
template <class T>
struct FinishedRows {
  std::size_t first = 0, count = 0;
  const T* scores = nullptr;
  const T* weights = nullptr;
  std::size_t stride = 0;  ///< elements from one row to the next
};

template <class T>
struct Results {
  T* context = nullptr;     ///< (B, H, L, Dv); required unless Dv is 0
  Strides context_strides;  ///< so that heads can stand side by side; column must be 1
  T* logsumexp = nullptr;   ///< (B, H, L), contiguous

  /// Where rows of scores and weights go as soon as they are finished: called from several threads
  /// at once, in any order, every row once. What it throws ends the computation.
  std::function<void(const FinishedRows<T>&)> sink;
  bool scores = false, weights = false;  ///< which of the two the sink is to be given
};

/// A sink that stores into whole (B * H * L, S) matrices; either may be nullptr.
template <class T>
std::function<void(const FinishedRows<T>&)> store_rows(T* scores, T* weights, std::size_t S);

}  // namespace attn::kernel
