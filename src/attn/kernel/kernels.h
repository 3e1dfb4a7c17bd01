// What each instruction set provides, as a table of functions over blocks of one key/value head.
//
// Packed keys stand in panels of `panel` keys: [key / panel][D][panel], the last one padded with
// zeros. Packed values stand in panels of `panel` columns: [column / panel][key][panel], the last
// one narrowed to a multiple of `lanes` and padded with zeros; a NaN or infinity is packed as zero
// and added again by hand, only where it is visible (0 * NaN would leak through a product). Values
// that can be read where they stand, and are finite, are not packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "attn/kernel/isa.h"
#include "attn/kernel/rows.h"

namespace attn::kernel {

/// Keys whose softmax is computed together; the same for every shape and instruction set, as
/// results depend on it in their last bits. A multiple of every `panel`.
inline constexpr std::size_t kKeyBlock = 512;
constexpr std::size_t key_blocks(std::size_t keys) { return (keys + kKeyBlock - 1) / kKeyBlock; }

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

struct Geometry {
  std::size_t lanes = 1;       ///< elements of a vector
  std::size_t panel = 1;       ///< keys of a key panel, columns of a value panel
  std::size_t tile_rows = 1;   ///< query rows of the micro-kernel
  std::size_t group_rows = 1;  ///< the most of a group: rows that are worked on together
};

/// Keys [first, last); none at first.
struct Span {
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  bool empty() const { return first >= last; }
};

/// Keys that rows which are worked on together reach: any of them those in [first, last), all of
/// them those in [all_first, all_last), masks and bias left aside.
struct Reach {
  std::int64_t first = 0, last = 0, all_first = 0, all_last = 0;
};

/// How the values of a key block are to be read.
enum class ValueKind : std::uint8_t {
  in_place,
  packed,
  tainted,  ///< packed, and some are NaN or infinite
};

/// Keys and values of one head. Unpacked (keys == nullptr), blocks are packed into scratch as used,
/// or read where they stand by a block of few rows.
template <class T>
struct KeyValues {
  Matrix k, v;
  const T* keys = nullptr;
  const T* values = nullptr;
  const ValueKind* kinds = nullptr;  ///< per key block
};

/// What a softmax so far amounts to, per row: the greatest score (in units of log(2)), the sum of
/// 2^(score - max), and the values weighted by them, (rows, stride).
template <class T>
struct Partial {
  T* max = nullptr;
  T* sum = nullptr;
  T* values = nullptr;
  std::size_t stride = 0;
};

/// Scratch of one worker.
template <class T>
struct Scratch {
  Row<T>* row = nullptr;   ///< (rows)
  Reach* reach = nullptr;  ///< of each group
  Span* seen = nullptr;    ///< of each group
  T* query = nullptr;      ///< (rows, D), for those that cannot be read where they stand
  bool whole_rows =
      false;           ///< the strip holds all rows and keys; otherwise a group and a key block
  T* strip = nullptr;  ///< scores, then 2^(score - max), at last weights
  /// (rows, strip_stride), where they are asked for: q . k, and what comes of it on the way to the
  /// strip, in its own units. `masked` is there with `scaled`, and `raw` with either.
  T *raw = nullptr, *scaled = nullptr, *masked = nullptr;
  std::size_t strip_stride = 0;
  T* running_max = nullptr;  ///< (rows, lanes)
  Partial<T> partial;
  T* saved = nullptr;        ///< (group_rows, partial.stride)
  T* widened = nullptr;      ///< (panel, max(D, Dv)): rows of T on their way into a panel
  T* key_block = nullptr;    ///< panels of kKeyBlock keys, for unpacked ones
  T* value_block = nullptr;  ///< panels of kKeyBlock values, for unpacked ones
};

/// A block of query rows that share a key/value head.
template <class T>
struct RowBlock {
  const Problem<T>& problem;
  std::size_t first = 0, rows = 0;  ///< flat rows
  KeyValues<T> kv;
  Scratch<T> scratch;
  bool has_sinks = true;  ///< begin() puts the sinks into the partial

  // Known when rows have been read:
  const T* query = nullptr;    ///< (rows, D), in scratch or where the queries stand
  std::size_t group_rows = 0;  ///< of its groups, kTileRows or as many as may be
};

template <class T>
struct Kernels {
  Geometry geometry;

  /// Packs keys [first, first + count), count <= panel, into one panel.
  void (*pack_keys)(const Matrix& k, std::size_t first, std::size_t count, std::size_t D,
                    T* widened, T* panel);

  /// Packs values [first, first + count) to keys `at` and on of panels that are `keys` long, unless
  /// they can be left where they stand.
  ValueKind (*pack_values)(const Matrix& v, std::size_t first, std::size_t count, std::size_t Dv,
                           T* widened, T* packed, std::size_t keys, std::size_t at);

  /// Reads rows and queries, the latter where they stand if they may, and empties the partial.
  void (*begin)(RowBlock<T>& block, const Results<T>& results);

  /// Folds key blocks [from, to) into the partial, in this order.
  void (*stream)(RowBlock<T>& block, std::size_t from, std::size_t to);

  /// The same for all key blocks at once, leaving weights in the strip (and scores in raw).
  void (*strip)(RowBlock<T>& block);

  /// Folds another partial into the block's.
  void (*merge)(RowBlock<T>& block, const Partial<T>& other);

  /// Writes context and logsumexp.
  void (*finish)(RowBlock<T>& block, const Results<T>& results);

  /// begin(), stream() and finish() where all keys are one block.
  void (*single)(RowBlock<T>& block, const Results<T>& results);

  /// Runs `rounds` rounds of independent multiply-adds in registers and returns how many floating
  /// point operations these were: what the machine's peak is measured by.
  double (*multiply_add)(std::size_t rounds);
};

template <class T>
const Kernels<T>& kernels(Isa isa);

}  // namespace attn::kernel
