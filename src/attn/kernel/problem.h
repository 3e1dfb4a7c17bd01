// The input of the kernels: an attention problem as pointers and strides into arrays that the
// caller owns. reference.h defines the result in plain loops:
//
//   scores  = q_i . k_j, or those of another score function
//   scaled  = softcap(scale * head_scale * scores)
//   masked  = scaled + distances[j - center_i] + biases,   -inf where key j is hidden from query i
//   weights = exp(masked / temperature - logsumexp), or those of another normaliser,
//             logsumexp_i = log(exp(sink) + sum_j exp(masked[i, j] / temperature))
//   context = dropout(weights) V
//
// with softcap(x) = c tanh(x / c), which may also be applied after the biases. dropout() multiplies
// the weights that it keeps by a factor and replaces the others by 0.
//
// Letters: B batch, H query heads, G key/value heads (H % G == 0; query head h reads key/value head
// h / (H / G)), L queries, S keys, D query/key width, Dv value width. Any of them may be 0.
//
// Key j is visible to query i if
//   - begin <= j < end of the query's key range (lengths, causality, windows, segments),
//   - no mask hides it, and
//   - no bias[b, h, i, j] is -inf.
// A hidden key contributes nothing, even if its elements of K or V are NaN; a visible NaN
// propagates. If a query sees no key, its logsumexp is -inf and all its weights are `empty_weight`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attn/base/dtype.h"
#include "attn/base/number_code.h"

namespace attn::kernel {

/// Distances between neighbours along each axis, in elements; 0 broadcasts along the axis.
struct Strides {
  std::int64_t batch = 0, head = 0, row = 0, column = 1;
};

/// How stored elements become numbers of type T: (element - zero) * factor.
struct Decoding {
  bool is_used = false;
  Code code = Code::none;                ///< others: elements are of type u8
  const double* factors = nullptr;       ///< nullptr: none
  const double* zeros = nullptr;         ///< at the same places; nullptr: 0
  const std::int64_t* starts = nullptr;  ///< of the factors of head 0, as `rows`; nullptr: 0
  std::int64_t head = 0;                 ///< from the factors of a head to those of the next
  std::size_t columns = 1;               ///< neighbouring columns that share a factor
};

/// Elements of type f64, f32, f16, bf16, i8 or u8. Types other than T are converted during packing.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Strides strides;
  /// Where the rows of keys or values start, relative to their head and in place of row strides;
  /// -1: a row of zeros.
  const std::int64_t* rows = nullptr;
  std::int64_t rows_batch = 0;  ///< batch stride of `rows`
  Decoding decoding = {};       ///< requires `rows` and contiguous columns
  /// Has the columns after the first `width` of each row; nullptr: none. Requires `rows`.
  std::shared_ptr<const Operand> rest = {};
  std::size_t width = 0;
  /// All numbers are bfloat16, also in a wider dtype, and may be multiplied as such.
  bool holds_bf16 = false;
};

/// The keys that a query may see.
struct KeyRange {
  std::int64_t begin = 0, end = 0;  ///< 0 <= begin <= end <= S
  std::int64_t center = 0;          ///< the key at distance 0; may be outside of [0, S)
  bool padding = false;  ///< sees nothing, and its weights are 0 even if empty_weight is not
};

/// (B, H, L, S) bytes that show or hide keys.
struct Mask {
  const std::uint8_t* data = nullptr;
  Strides strides;
  bool hides = false;  ///< nonzero bytes hide keys; otherwise zero bytes do
};

/// (B, H, L, S) numbers added to the scores; -inf hides a key.
template <class T>
struct Bias {
  const T* data = nullptr;
  Strides strides;
};

/// How a score is computed from a query and a key.
enum class Score : std::uint8_t {
  product,   ///< q . k
  distance,  ///< -|q - k|^2
  tanh,      ///< score_weights . tanh(q + k)
};

/// Turns the visible scores x = masked / temperature of a query into weights. softmax includes the
/// sink. In the others, t is such that the weights sum to 1.
enum class Normaliser : std::uint8_t {
  softmax,
  sparsemax,  ///< max(x - t, 0) (Martins & Astudillo, arXiv:1602.02068)
  entmax15,   ///< max(x / 2 - t, 0)^2 (Peters et al., arXiv:1905.05702)
  hardmax,    ///< 1 for the first of the largest scores
  sigmoid,    ///< 1 / (1 + exp(-x))
  top_k,      ///< softmax of the `top_k` largest scores, the first if tied
};

/// T, float or double, is the type of all computations.
template <class T>
struct AttentionProblem {
  std::size_t B = 1, H = 1, G = 1, L = 0, S = 0, D = 0, Dv = 0;
  Operand q, k, v;  ///< (B, H, L, D), (B, G, S, D), (B, G, S, Dv)

  const KeyRange* key_ranges = nullptr;  ///< (B or 1, L); nullptr: every query sees [0, S)
  std::int64_t key_ranges_batch = 0;     ///< batch stride of key_ranges; 0: shared by all items

  Score score = Score::product;
  const T* score_weights = nullptr;  ///< (D), of Score::tanh

  /// Queries, keys, weights and values are rounded to bfloat16 before they are multiplied. Requires
  /// T = float. The weights of softmax are rounded before they are divided by their sum. Subnormal
  /// numbers, before or after rounding, may count as 0, and so may those of operands that hold
  /// bfloat16.
  bool bf16_products = false;

  T scale = 1;                     ///< any sign
  const T* head_scales = nullptr;  ///< (H), any sign; nullptr: all 1
  T softcap = 0;                   ///< c > 0; 0: off
  bool softcap_last = false;
  T temperature = 1;
  Normaliser normaliser = Normaliser::softmax;
  std::size_t top_k = 0;     ///< at least 1 with Normaliser::top_k
  T empty_weight = 0;        ///< weight of each key for a query that sees none: 0, 1 / S or NaN
  const T* sinks = nullptr;  ///< (H), finite or -inf

  /// A bias by the distance j - center. `data` points to distance 0 of head 0; the column stride is
  /// 1 and the row stride is ignored. -inf does not hide a key.
  Bias<T> distances;
  std::array<Mask, 3> masks;      ///< unused ones have no data and come last
  std::array<Bias<T>, 2> biases;  ///< likewise

  Mask dropout;          ///< hides weights that are dropped; no data: none
  T dropout_factor = 1;  ///< of the weights that are kept, 1 / (1 - p)
};

/// Rows [first, first + count) of the (B * H * L, S) matrices of raw scores (q . k), scaled scores,
/// masked scores, weights and weights after dropout; nullptr for matrices that were not requested.
/// Valid during the call. Context and logsumexp of these rows are already written.
template <class T>
struct FinishedRows {
  std::size_t first = 0, count = 0;
  const T* scores = nullptr;
  const T* weights = nullptr;
  const T* scaled = nullptr;
  const T* masked = nullptr;
  const T* dropped = nullptr;
  std::size_t stride = 0;  ///< elements from one row to the next
};

/// The part of the key blocks that this process computes; other processes call attend() for the
/// same problem and compute the other parts. All of them get the results.
struct KeyPart {
  std::size_t index = 0, count = 1;
  /// Part i has set bytes [ends[i - 1], ends[i]) (from 0 for part 0); afterwards all processes have
  /// all of them.
  std::function<void(std::span<std::byte> bytes, const std::vector<std::size_t>& ends)> exchange;
};

template <class T>
struct Results {
  T* context = nullptr;     ///< (B, H, L, Dv); required unless Dv is 0
  Strides context_strides;  ///< (the column stride must be 1)
  T* logsumexp = nullptr;   ///< (B, H, L), contiguous
  /// (B, H, L), contiguous: how much larger logarithms to base 2 are than logsumexp * log2(e) as
  /// the backward kernel computes it. Without it, scores of -1e9 would leave no digit for weights.
  T* remainder = nullptr;
  const KeyPart* key_part = nullptr;  ///< has an effect if rows are few: can_split_keys()

  /// Receives rows of scores and weights as soon as they are finished, each row once: concurrently
  /// from several threads and in any order. Never called if nothing is requested below. An
  /// exception ends the computation.
  std::function<void(const FinishedRows<T>&)> on_rows;
  bool scores = false, weights = false;  ///< matrices to pass to `on_rows`
  bool scaled = false, masked = false;
  bool dropped = false;  ///< requires AttentionProblem::dropout
};

}  // namespace attn::kernel
