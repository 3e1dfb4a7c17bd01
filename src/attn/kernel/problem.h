// What the fast path computes, as arrays that stand elsewhere.
//
//   scores  = q_i . k_j
//   scaled  = softcap(scale * scores)
//   masked  = scaled + distances[j - center_i] + biases,   -inf where key j is hidden from query i
//   weights = exp(masked / temperature - logsumexp),
//             logsumexp_i = log(exp(sink) + sum_j exp(masked[i, j] / temperature))
//   context = weights V
//
// with softcap(x) = c tanh(x / c), which may come behind the biases instead.
//
// Letters: B batch, H query heads, G key/value heads (H % G == 0; query head h reads key/value head
// h / (H / G)), L queries, S keys, D query/key width, Dv value width. Any of them may be 0.
//
// Key j is visible from a query when all of these hold:
//   first <= j < last, of the query's place (lengths, causality, windows, documents)
//   every boolean mask lets it be seen · no bias[b, h, i, j] is -inf
// A hidden key contributes nothing, whatever stands in its K and V; a visible NaN goes through. A
// query that sees no key has logsumexp -inf, every weight of it is `empty_weight`, and its context
// what that makes: 0 unless told otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "attn/base/dtype.h"

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

/// Where a query stands among the keys.
struct Place {
  std::int64_t first = 0,
               last = 0;    ///< it sees none but keys [first, last), 0 <= first <= last <= S
  std::int64_t center = 0;  ///< the key that it is at no distance from; any number
  bool padding = false;     ///< sees nothing, and weighs 0 whatever `empty_weight` is
};

/// (B, H, L, S) bytes that say what is seen.
struct Mask {
  const std::uint8_t* data = nullptr;
  Strides strides;
  bool hides = false;  ///< nonzero: hidden, rather than: may be seen
};

/// (B, H, L, S) numbers that are added; -inf hides.
template <class T>
struct Bias {
  const T* data = nullptr;
  Strides strides;
};

/// T is float or double: what everything is computed in.
template <class T>
struct Problem {
  std::size_t B = 1, H = 1, G = 1, L = 0, S = 0, D = 0, Dv = 0;
  Operand q, k, v;  ///< (B, H, L, D), (B, G, S, D), (B, G, S, Dv)

  const Place* places = nullptr;  ///< (B, L); nullptr: every query sees [0, S)
  std::int64_t places_batch = 0;  ///< from one batch item's to the next one's; 0: the same for all

  T scale = 1;    ///< any sign
  T softcap = 0;  ///< c > 0; 0: off
  bool softcap_last = false;
  T temperature = 1;
  T empty_weight = 0;        ///< 0, 1 / S or NaN
  const T* sinks = nullptr;  ///< (H), finite or -inf

  /// Added by distance: its strides' column is 1, its row is not looked at, and its data stands at
  /// distance 0 of head 0. It hides nothing.
  Bias<T> distances;
  std::array<Mask, 3> masks;      ///< those that have data; one alone as the first
  std::array<Bias<T>, 2> biases;  ///< the same
};

/// Rows `first` to `first + count` of the (B * H * L, S) matrices of raw scores (q . k alone),
/// scaled and masked ones, and weights; nullptr for those not asked for. Valid during the call;
/// context and logsumexp of these rows are there already.
template <class T>
struct FinishedRows {
  std::size_t first = 0, count = 0;
  const T* scores = nullptr;
  const T* weights = nullptr;
  const T* scaled = nullptr;
  const T* masked = nullptr;
  std::size_t stride = 0;  ///< elements from one row to the next
};

template <class T>
struct Results {
  T* context = nullptr;     ///< (B, H, L, Dv); required unless Dv is 0
  Strides context_strides;  ///< so that heads can stand side by side; column must be 1
  T* logsumexp = nullptr;   ///< (B, H, L), contiguous

  /// Where rows of scores, weights and what is between them go as soon as they are finished: called
  /// from several threads at once, in any order, every row once; not at all where nothing is asked
  /// for below. What it throws ends the computation.
  std::function<void(const FinishedRows<T>&)> sink;
  bool scores = false, weights = false;  ///< which of them the sink is to be given
  bool scaled = false, masked = false;
};

}  // namespace attn::kernel
