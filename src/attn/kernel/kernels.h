// The kernels of one instruction set: a table of functions that work on one key/value head and a
// block of query rows.
//
// Layout of packed operands (zero-padded):
//   keys    [key / panel][D][panel], or [key / panel][ceil(D / 2)][panel] of pairs (FactorForm)
//   values  [column / panel][key][panel], where the last panel is only as wide as needed, in whole
//           vectors. A NaN or infinite value is packed as 0, because 0 * NaN = NaN would reach rows
//           to which the key is hidden; rows that see the key add it separately. Pairs:
//           [column / panel][ceil(key / 2)][panel]; tiles: see amx_values-inl.h.
// Values that are finite and have a suitable layout are read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "attn/kernel/backward_kernel.h"
#include "attn/kernel/isa.h"
#include "attn/kernel/rows.h"

namespace attn::kernel {

/// The number of keys in one softmax step, a multiple of every panel size. The last bits of results
/// depend on it, so it is the same for all shapes and instruction sets.
inline constexpr std::size_t kKeyBlock = 512;
constexpr std::size_t key_blocks(std::size_t keys) { return (keys + kKeyBlock - 1) / kKeyBlock; }

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// What queries and keys, or weights and values, are when they are multiplied. The terms of a sum
/// are columns of the former and keys of the latter.
enum class FactorForm : std::uint8_t {
  numbers,  ///< of type T
  rounded,  ///< of type T, rounded to bfloat16
  pairs,    ///< two neighbouring terms as bfloat16 in the bits of one float, the first in the lower
  tiles,    ///< pairs that are multiplied in the tile registers of AMX
};

constexpr bool are_pairs(FactorForm factors) {
  return factors == FactorForm::pairs || factors == FactorForm::tiles;
}

/// The elements of T that a factor of this many terms takes.
constexpr std::size_t depth_of(FactorForm factors, std::size_t terms) {
  return are_pairs(factors) ? (terms + 1) / 2 : terms;
}

/// The keys that AMX multiplies in one step, and the steps of `keys` keys.
inline constexpr std::size_t kStepKeys = 32;
constexpr std::size_t key_steps(std::size_t keys) { return (keys + kStepKeys - 1) / kStepKeys; }

/// The elements of T that `keys` packed values take, of `stride` columns in whole vectors.
constexpr std::size_t packed_value_size(std::size_t keys, std::size_t stride, FactorForm factors) {
  const bool has_steps = factors == FactorForm::tiles;
  return depth_of(factors, has_steps ? key_steps(keys) * kStepKeys : keys) * stride;
}

struct Geometry {
  std::size_t lanes = 1;          ///< elements of a vector
  std::size_t panel = 1;          ///< keys of a key panel, columns of a value panel
  std::size_t tile_rows = 1;      ///< query rows of the micro-kernel
  std::size_t group_rows = 1;     ///< most rows of a group, which are computed together
  std::size_t backward_keys = 1;  ///< keys of a step of the backward pass
  FactorForm bf16_factors = FactorForm::rounded;  ///< those that the processor multiplies fastest
};

/// Keys [first, last); empty by default.
struct Span {
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  bool empty() const { return first >= last; }
};

/// The key ranges of a group of rows, without masks and biases: their union [first, last) and their
/// intersection [all_first, all_last).
struct Reach {
  std::int64_t first = 0, last = 0, all_first = 0, all_last = 0;
};

/// How the values of a key block are read.
enum class ValueKind : std::uint8_t {
  in_place,
  packed,
  non_finite,  ///< packed, with zeros instead of NaN and infinite values
};

/// Keys and values of one head. If they are not packed (keys == nullptr), key blocks are packed
/// into scratch memory when they are needed, or read row by row by a block of few rows.
template <class T>
struct KeyValues {
  Matrix k, v;
  FactorForm key_factors = FactorForm::numbers, value_factors = FactorForm::numbers;
  const T* keys = nullptr;
  const T* values = nullptr;
  const ValueKind* kinds = nullptr;  ///< per key block
};

/// The state of an online softmax (Milakov & Gimelshein, arXiv:1805.02867) for each row: the
/// maximum score so far (in units of log(2)), the sum of 2^(score - max), and the sum of the values
/// weighted by these, (rows, stride).
template <class T>
struct SoftmaxState {
  T* max = nullptr;
  T* sum = nullptr;
  T* values = nullptr;
  std::size_t stride = 0;
};

/// Scratch memory of one worker.
template <class T>
struct Scratch {
  Row<T>* row = nullptr;    ///< (rows)
  Reach* reach = nullptr;   ///< of each group
  Span* visible = nullptr;  ///< of each group
  T* query = nullptr;  ///< (rows, depth), if queries cannot be read in place; then (depth, rows)
  bool full_rows = false;  ///< `scores` holds all rows and keys, not only a group and a key block
  T* scores = nullptr;     ///< scores, then 2^(score - max), finally weights
  /// (rows, score_stride), if requested: raw, scaled and masked scores in units of 1. `scaled`
  /// requires `masked`, and both require `raw`.
  T *raw = nullptr, *scaled = nullptr, *masked = nullptr;
  /// (rows, score_stride) with full_rows and dropout: `scores` after dropout.
  T* dropped = nullptr;
  /// (group_rows, score_stride) with normalisers other than softmax: the scores of a group.
  T* unweighed = nullptr;
  /// (group_rows, depth_of(value_factors, kKeyBlock)) with FactorForm::rounded and pairs: the
  /// weights of a group and a key block as factors of values.
  T* weights = nullptr;
  std::size_t score_stride = 0;
  T* running_max = nullptr;  ///< (rows, lanes)
  SoftmaxState<T> state;
  T* saved = nullptr;        ///< (group_rows, partial.stride)
  T* widened = nullptr;      ///< (panel, max(D, Dv)): rows converted to T
  T* key_block = nullptr;    ///< a packed key block
  T* value_block = nullptr;  ///< packed values of a key block
};

/// A block of query rows that share a key/value head.
template <class T>
struct QueryBlock {
  const AttentionProblem<T>& problem;
  std::size_t first = 0, rows = 0;  ///< flat rows
  KeyValues<T> kv;
  Scratch<T> scratch;
  bool has_sinks = true;  ///< begin() adds the sinks to the softmax state

  // Set by begin():
  const T* query = nullptr;       ///< (rows, depth), in scratch memory or in place
  const T* transposed = nullptr;  ///< (depth, rows), if tiles multiply unpacked keys
  std::size_t group_rows = 0;     ///< rows of a group, which are computed together
};

template <class T>
struct Kernels {
  Geometry geometry;

  /// Packs keys [first, first + count) of `all`, count <= panel, into one panel.
  void (*pack_keys)(const Matrix& k, FactorForm factors, std::size_t first, std::size_t count,
                    std::size_t all, std::size_t D, T* widened, T* panel);

  /// Packs values [first, first + count) of `keys`, a key block, unless they can be read in place.
  /// `packed` is for all keys.
  ValueKind (*pack_values)(const Matrix& v, FactorForm factors, std::size_t first,
                           std::size_t count, std::size_t keys, std::size_t Dv, T* widened,
                           T* packed);

  /// Reads rows and queries and resets the softmax state.
  void (*begin)(QueryBlock<T>& block, const Results<T>& results);

  /// Adds key blocks [from, to) to the softmax state, in this order.
  void (*stream)(QueryBlock<T>& block, std::size_t from, std::size_t to);

  /// Adds all keys and leaves whole rows of weights (and the scores requested) in scratch memory.
  void (*full_rows)(QueryBlock<T>& block);

  /// Adds another softmax state to the block's.
  void (*merge)(QueryBlock<T>& block, const SoftmaxState<T>& other);

  /// Writes context and logsumexp.
  void (*finish)(QueryBlock<T>& block, const Results<T>& results);

  /// begin(), stream() and finish() in one, if all keys are one block.
  void (*single_block)(QueryBlock<T>& block, const Results<T>& results);

  /// Packs keys and values and resets the sums of their gradients.
  void (*backward_begin)(const BackwardKeys<T>& keys);

  /// Adds query rows [first, first + rows) of one head, at most kBackwardRows, to the gradients of
  /// the keys, values and biases, and leaves what the keys add to those of the queries in
  /// scratch.grad_query.
  void (*backward_rows)(const BackwardKeys<T>& keys, std::size_t first, std::size_t rows);

  /// Writes scaled sums to contiguous rows, or adds them to these.
  void (*backward_write)(const BackwardSums<T>& sums, bool add, T* to);

  /// Runs `rounds` rounds of independent multiply-adds in registers and returns the number of
  /// floating point operations. For measuring the machine's peak.
  double (*multiply_add)(std::size_t rounds);
};

template <class T>
const Kernels<T>& kernels(Isa isa);

}  // namespace attn::kernel

namespace attn::kernel {

template <class T>
Kernels<T> baseline_kernels();
template <class T>
Kernels<T> avx2_kernels();
template <class T>
Kernels<T> avx512_kernels();

}  // namespace attn::kernel
