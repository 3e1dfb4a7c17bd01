// Scores of a few rows from unpacked keys, which are transposed in registers or, in tiles, not at
// all: if only one tile of rows uses a key, packing takes longer than the product. The sums equal
// those of tile-inl.h bit for bit.
#pragma once

#include "attn/kernel/pack-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

// Vectors of keys that are multiplied together: each query element is loaded once for all.
inline constexpr std::size_t kKeyVectors = 2;
template <class T>
inline constexpr std::size_t kKeysAtOnce = kKeyVectors* kLanes<T>;

/// kKeysAtOnce keys in memory, `step` bytes apart, each with `depth` contiguous elements.
template <class T>
struct KeyRows {
  const T* first;
  std::ptrdiff_t step;
  const T* next = nullptr;  ///< keys to prefetch, also `step` apart; nullptr: unknown

  HWY_INLINE const T* at(std::size_t key) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(first) +
                                      static_cast<std::ptrdiff_t>(key) * step);
  }
};

/// A panel of unpacked keys: [first, first + count) of `all`, then zeros.
template <class T>
struct KeyPanel {
  const Matrix& k;
  std::size_t D, first, count, all;
  T* buffer;  ///< (kPanel, D)

  std::size_t depth() const { return D; }

  /// kKeysAtOnce keys from key `at` of the panel on, copied to the buffer. Transposing them where
  /// they are reads many rows at the same time, which is slow if they are in main memory and not
  /// prefetched.
  KeyRows<T> copied(std::size_t at) const {
    const std::size_t present = at < count ? HWY_MIN(kKeysAtOnce<T>, count - at) : 0;
    copy_rows(Rows<T>(k, D), first + at, present, all, D, buffer);
    set_zeros((kKeysAtOnce<T> - present) * D, buffer + present * D);
    return {buffer, static_cast<std::ptrdiff_t>(D * sizeof(T))};
  }

  /// The same keys in place, if they are contiguous T at equal distances of at most `most` bytes,
  /// otherwise copied. `next` is at least `ahead` bytes later.
  KeyRows<T> in_place_or_copied(std::size_t at, std::int64_t most, std::size_t ahead) const {
    const Rows<T> source(k, D);
    const bool may_stay = source.in_place() && at + kKeysAtOnce<T> <= count;
    const std::int64_t step = may_stay ? source.step(first + at, kKeysAtOnce<T>) : 0;
    if (step <= 0 || step > most) return copied(at);
    KeyRows<T> keys{source.at(first + at, buffer), step};
    if (!source.is_table()) {
      const std::size_t later = ahead / static_cast<std::size_t>(step);
      keys.next = keys.at(round_up(HWY_MAX(later, 1), kKeysAtOnce<T>));
      return keys;
    }
    const std::size_t next = first + at + kKeysAtOnce<T>;
    const std::size_t count_of_next = HWY_MIN(kKeysAtOnce<T>, all - next);
    if (count_of_next == kKeysAtOnce<T> && source.step(next, count_of_next) == step)
      keys.next = source.at(next, buffer);
    else
      for (std::size_t i = next; i < next + count_of_next; ++i) prefetch_ahead(source, i, all);
    return keys;
  }
};

/// The same for keys in bfloat16, as numbers or pairs. Only pairs that are stored are read in
/// place.
template <class T>
struct RoundedPanel {
  KeyPanel<T> keys;
  FactorForm factors;

  std::size_t depth() const { return depth_of(factors, keys.D); }

  HWY_NOINLINE KeyRows<T> copied(std::size_t at) const {
    const std::size_t from = keys.first + at;
    const std::size_t present = at < keys.count ? HWY_MIN(kKeysAtOnce<T>, keys.count - at) : 0;
    [[maybe_unused]] T* const rest = keys.buffer + kKeysAtOnce<T> * depth();
    const Rows<T> source(keys.k, keys.D);
    if (are_pairs(factors)) {
      if constexpr (kMultipliesPairs<T>)
        copy_pairs(source, from, present, keys.all, keys.D, rest, keys.buffer);
    } else {
      copy_rows(source, from, present, keys.all, keys.D, keys.buffer);
      round_to_bfloat16(keys.buffer, present * keys.D);
    }
    set_zeros((kKeysAtOnce<T> - present) * depth(), keys.buffer + present * depth());
    return {keys.buffer, static_cast<std::ptrdiff_t>(depth() * sizeof(T))};
  }

  KeyRows<T> in_place_or_copied(std::size_t at, std::int64_t most, std::size_t ahead) const {
    const Rows<T> source(keys.k, keys.D);
    const bool may_stay = are_pairs(factors) && source.is_plain(DType::bf16) &&
                          !source.is_table() && keys.D % 2 == 0 &&
                          at + kKeysAtOnce<T> <= keys.count;
    const std::int64_t step = may_stay ? source.step(keys.first + at, kKeysAtOnce<T>) : 0;
    if (step <= 0 || step > most || step % std::int64_t{sizeof(T)} != 0) return copied(at);
    KeyRows<T> rows{reinterpret_cast<const T*>(source.start(keys.first + at)), step};
    const std::size_t later = ahead / static_cast<std::size_t>(step);
    rows.next = rows.at(round_up(HWY_MAX(later, 1), kKeysAtOnce<T>));
    return rows;
  }
};

/// The addresses of kKeysAtOnce keys: those of the first kBlockLanes keys, and the distances of the
/// other blocks from these, which together fit into registers.
template <class T>
struct KeyCursor {
  static constexpr std::size_t kBlock = kBlockLanes<T>;
  const T* key[kBlock];
  std::ptrdiff_t step, blocks[kKeysAtOnce<T> / kBlock];  ///< in bytes

  HWY_INLINE explicit KeyCursor(const KeyRows<T>& keys) : step(keys.step) {
    for (std::size_t i = 0; i < kBlock; ++i) key[i] = keys.at(i);
    for (std::size_t i = 0; i < kKeysAtOnce<T> / kBlock; ++i)
      blocks[i] = static_cast<std::ptrdiff_t>(i * kBlock) * step;
  }
  HWY_INLINE const T* at(std::size_t block, std::size_t i) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(key[i]) + blocks[block]);
  }
  HWY_INLINE void advance(std::size_t columns) {
    for (std::size_t i = 0; i < kBlock; ++i) key[i] += columns;
  }
};

#if HWY_TARGET == HWY_AVX3
/// 256 bits from each of two keys.
HWY_INLINE Vec<float> join(const float* low, const float* high) {
  const __m512 first = _mm512_castps256_ps512(_mm256_loadu_ps(low));
  return Vec<float>{_mm512_insertf32x8(first, _mm256_loadu_ps(high), 1)};
}
HWY_INLINE Vec<double> join(const double* low, const double* high) {
  const __m512d first = _mm512_castpd256_pd512(_mm256_loadu_pd(low));
  return Vec<double>{_mm512_insertf64x4(first, _mm256_loadu_pd(high), 1)};
}

/// The even-numbered 128-bit blocks, and the odd-numbered ones, first those of a and then those of
/// b.
HWY_INLINE Vec<float> even_blocks(Vec<float> a, Vec<float> b) {
  return Vec<float>{_mm512_shuffle_f32x4(a.raw, b.raw, 0x88)};
}
HWY_INLINE Vec<double> even_blocks(Vec<double> a, Vec<double> b) {
  return Vec<double>{_mm512_shuffle_f64x2(a.raw, b.raw, 0x88)};
}
HWY_INLINE Vec<float> odd_blocks(Vec<float> a, Vec<float> b) {
  return Vec<float>{_mm512_shuffle_f32x4(a.raw, b.raw, 0xdd)};
}
HWY_INLINE Vec<double> odd_blocks(Vec<double> a, Vec<double> b) {
  return Vec<double>{_mm512_shuffle_f64x2(a.raw, b.raw, 0xdd)};
}

template <class T>
inline constexpr std::size_t kColumnsAtOnce = 2 * kBlockLanes<T>;

/// The next kColumnsAtOnce columns of the Part-th vector of keys. Loads are the bottleneck, so each
/// loads two blocks of a key.
template <std::size_t Part, class T>
HWY_INLINE void transpose_keys(const KeyCursor<T>& keys, Vec<T> (&columns)[kColumnsAtOnce<T>]) {
  constexpr std::size_t kBlock = kBlockLanes<T>, kFirst = Part * kLanes<T> / kBlock;
  Vec<T> low[kBlock], high[kBlock];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kBlock; ++i) {
    low[i] = join(keys.at(kFirst, i), keys.at(kFirst + 1, i));
    high[i] = join(keys.at(kFirst + 2, i), keys.at(kFirst + 3, i));
  }
  transpose_in_blocks<T>(low);
  transpose_in_blocks<T>(high);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kBlock; ++i) {
    columns[i] = even_blocks(low[i], high[i]);
    columns[kBlock + i] = odd_blocks(low[i], high[i]);
  }
}
#else
template <class T>
inline constexpr std::size_t kColumnsAtOnce = kBlockLanes<T>;

template <std::size_t Part, class T>
HWY_INLINE void transpose_keys(const KeyCursor<T>& keys, Vec<T> (&columns)[kColumnsAtOnce<T>]) {
  constexpr std::size_t kFirst = Part * kLanes<T> / kBlockLanes<T>;
  const BlockTag<T> d;
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kBlockLanes<T>; ++i) {
    const auto low = hn::LoadU(d, keys.at(kFirst, i));
    if constexpr (kLanes<T> == kBlockLanes<T>)
      columns[i] = low;
    else
      columns[i] = hn::Combine(Tag<T>(), hn::LoadU(d, keys.at(kFirst + 1, i)), low);
  }
  transpose_in_blocks<T>(columns);
}
#endif

/// Prefetches one cache line of some of the kKeysAtOnce keys that start at `next`. The calls for
/// the columns of one cache line together prefetch all of these keys.
template <class T>
HWY_INLINE void prefetch_keys(const T* next, std::ptrdiff_t step_of_keys, std::size_t column) {
  constexpr std::size_t kLine = 64 / sizeof(T), kLoadsPerLine = kLine / kColumnsAtOnce<T>;
  constexpr std::size_t kShare = HWY_MAX(kKeysAtOnce<T> / kLoadsPerLine, 1);
  const std::size_t first = column % kLine / kColumnsAtOnce<T> * kShare;
  const auto step = static_cast<std::uintptr_t>(step_of_keys);
  std::uintptr_t at = reinterpret_cast<std::uintptr_t>(next + column) + first * step;
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kShare; ++i, at += step)
    __builtin_prefetch(reinterpret_cast<const void*>(at));
}

/// Adds query elements [column, column + count) times the keys' columns to the sums.
template <class T, Term kTerm, std::size_t Rows, std::size_t Columns>
HWY_INLINE void add_products(const T* query, std::size_t depth,
                             const Vec<T> (&columns)[kKeyVectors][Columns],
                             Vec<T> (&sums)[Rows][kKeyVectors]) {
#pragma GCC unroll 8
  for (std::size_t k = 0; k < Columns; ++k)
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Rows; ++i) {
      const Vec<T> element = hn::Set(Tag<T>(), query[i * depth + k]);
#pragma GCC unroll 8
      for (std::size_t j = 0; j < kKeyVectors; ++j)
        sums[i][j] = add_term<T, kTerm>(element, columns[j][k], sums[i][j]);
    }
}

/// multiply_tile() for `keys` and columns [from, to); `cursor` is at
/// column `from`.
template <class T, Term kTerm, std::size_t Rows, class Finish>
HWY_INLINE void multiply_keys(std::size_t from, std::size_t to, const T* query, std::size_t depth,
                              const KeyRows<T>& keys, KeyCursor<T>& cursor, Finish finish) {
  constexpr std::size_t kColumns = kColumnsAtOnce<T>;
  Vec<T> sums[Rows][kKeyVectors];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < Rows; ++i) sums[i][0] = sums[i][1] = hn::Zero(Tag<T>());
  std::size_t column = from;
#pragma GCC unroll 1
  for (; column + kColumns <= to; column += kColumns) {
    if (keys.next) prefetch_keys(keys.next, keys.step, column);
    Vec<T> columns[kKeyVectors][kColumns];
    transpose_keys<0>(cursor, columns[0]);
    transpose_keys<1>(cursor, columns[1]);
    cursor.advance(kColumns);
    add_products<T, kTerm>(query + column, depth, columns, sums);
  }
  for (; column < to; ++column) {
    HWY_ALIGN T elements[kKeysAtOnce<T>];
    for (std::size_t i = 0; i < kKeysAtOnce<T>; ++i) elements[i] = keys.at(i)[column];
    const Tag<T> d;
    const Vec<T> columns[kKeyVectors][1] = {{hn::Load(d, elements)},
                                            {hn::Load(d, elements + kLanes<T>)}};
    add_products<T, kTerm>(query + column, depth, columns, sums);
  }
  finish(sums);
}

/// score_rows() for one panel of unpacked keys.
template <class T, Term kTerm = Term::product, class Panel = KeyPanel<T>>
void score_keys(std::size_t rows, std::size_t vectors, const T* query, const Panel& panel, T scale,
                T* out, std::size_t out_stride, T* running_max) {
  with_constant<kTileRows>(rows, [=, &panel](auto r) {
    constexpr std::size_t kRows = decltype(r)::value;
    const Vec<T> factor = hn::Set(Tag<T>(), scale);
    const std::size_t depth = panel.depth();
    for (std::size_t at = 0; at < vectors * kLanes<T>; at += kKeysAtOnce<T>) {
      const KeyRows<T> keys = panel.in_place_or_copied(at, most_step_in_place(rows), kBytesAhead);
      KeyCursor<T> cursor(keys);
      sum_parts<T, kRows, kKeyVectors>(
          0, depth, out + at, out_stride,
          [&](std::size_t part, std::size_t next, auto f) {
            multiply_keys<T, kTerm, kRows>(part, next, query, depth, keys, cursor, f);
          },
          [&](auto& sums) {
#pragma GCC unroll 16
            for (std::size_t i = 0; i < kRows; ++i)
              store_scores<T>(sums[i], factor, out + at + i * out_stride,
                              running_max ? running_max + i * kLanes<T> : nullptr);
          });
    }
  });
}

#if ATTN_HAS_PAIRS
/// The same in tiles, as keys times `queries` (depth, rows).
inline HWY_NOINLINE void score_keys_in_tiles(std::size_t rows, std::size_t vectors,
                                             const float* queries, const RoundedPanel<float>& panel,
                                             float scale, float* out, std::size_t out_stride,
                                             float* running_max) {
  static_assert(kKeyVectors == 2 && kTileHeight == kLanes<float>);
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> d32;
  const auto row_step = hn::Mul(hn::Iota(d32, 0), hn::Set(d32, static_cast<std::int32_t>(rows)));
  const std::size_t depth = panel.depth(), whole = depth - depth % kStepPairs;
  const TileUse use(kTileHeight, rows, depth);
  HWY_ALIGN float products[kKeysAtOnce<float> * kTileRows];  // (keys, rows)
  for (std::size_t at = 0; at < vectors * kLanes<float>; at += kKeysAtOnce<float>) {
    const KeyRows<float> keys = panel.in_place_or_copied(at, most_step_in_place(rows), kBytesAhead);
    const auto step = static_cast<std::size_t>(keys.step) / sizeof(float);
    clear_tile<0>();
    clear_tile<1>();
    for (std::size_t k = 0; k < whole; k += kStepPairs) {
      if (keys.next)
        for (std::size_t part = 0; part < kStepPairs; part += kColumnsAtOnce<float>)
          prefetch_keys(keys.next, keys.step, k + part);
      add_step_of_keys<kLeft, kRight>(keys.first + k, step, queries + k * rows, rows);
    }
    if (whole < depth)
      add_step_of_keys<kLastLeft, kLastRight>(keys.first + whole, step, queries + whole * rows,
                                              rows);
    store_tile<0>(products, rows);
    store_tile<1>(products + kTileHeight * rows, rows);
    for (std::size_t i = 0; i < rows; ++i) {
      Vec<float> sums[kKeyVectors];
      for (std::size_t j = 0; j < kKeyVectors; ++j)
        sums[j] = hn::GatherIndex(d, products + j * kTileHeight * rows + i, row_step);
      store_scores<float>(sums, hn::Set(d, scale), out + at + i * out_stride,
                          running_max ? running_max + i * kLanes<float> : nullptr);
    }
  }
}
#endif

}  // namespace attn::kernel::HWY_NAMESPACE
