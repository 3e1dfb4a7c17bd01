// Scores of a few rows from unpacked keys, which are transposed in registers or, in tiles, not at
// all: if only one tile of rows uses a key, packing takes longer than the product. The sums equal
// those of tile-inl.h bit for bit.
#pragma once

#include "attn/kernel/elements-inl.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

// Vectors of keys that are multiplied together: each query element is loaded once for all. Not two
// of 16 keys, because the processor follows fewer sequences of addresses than 32 at the same time:
// it reads main memory half as fast. Vectors of float64, with 8 keys each, were not measured.
inline constexpr std::size_t kKeyVectors = HWY_TARGET == HWY_AVX3 ? 1 : 2;
template <class T>
inline constexpr std::size_t kKeysAtOnce = kKeyVectors* kLanes<T>;

/// Keys in memory, `step` bytes apart, each with contiguous elements.
template <class T>
struct KeyRows {
  const T* first;
  std::ptrdiff_t step;
  bool is_dense = false;    ///< no gaps between keys
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

  /// `keys` keys from key `at` of the panel on, copied to the buffer. Transposing them where they
  /// are reads many rows at the same time, which is slow if they are in main memory and not
  /// prefetched.
  KeyRows<T> copied(std::size_t at, std::size_t keys) const {
    const std::size_t present = at < count ? HWY_MIN(keys, count - at) : 0;
    copy_rows(Rows<T>(k, D), first + at, present, all, D, buffer);
    set_zeros((keys - present) * D, buffer + present * D);
    return {buffer, static_cast<std::ptrdiff_t>(D * sizeof(T))};
  }

  /// The same keys in place, if they are contiguous T at equal distances of at most `most` bytes,
  /// otherwise copied. `next` is at least `ahead` bytes later.
  KeyRows<T> in_place_or_copied(std::size_t at, std::size_t keys, std::int64_t most,
                                std::size_t ahead) const {
    const Rows<T> source(k, D);
    const bool may_stay = source.in_place() && at + keys <= count;
    const std::int64_t step = may_stay ? source.step(first + at, keys) : 0;
    if (step <= 0 || step > most) return copied(at, keys);
    const auto bytes = static_cast<std::size_t>(step);
    KeyRows<T> rows{source.at(first + at, buffer), step, bytes == D * sizeof(T)};
    if (!source.is_table()) {
      rows.next = rows.at(round_up(HWY_MAX(ahead / bytes, 1), keys));
      return rows;
    }
    const std::size_t next = first + at + keys;
    const std::size_t count_of_next = HWY_MIN(keys, all - next);
    if (count_of_next == keys && source.step(next, count_of_next) == step)
      rows.next = source.at(next, buffer);
    else
      for (std::size_t i = next; i < next + count_of_next; ++i) prefetch_ahead(source, i, all);
    return rows;
  }
};

/// `count` keys in place that are contiguous elements of 16 bits, as pairs in the bits of T, if
/// their distance is a whole number of T. Otherwise `first` is nullptr.
template <class T>
KeyRows<T> pairs_in_place(const KeyPanel<T>& keys, std::size_t at, std::size_t count,
                          std::int64_t most, std::size_t ahead) {
  const Rows<T> source(keys.k, keys.D);
  const bool may_stay = !source.is_table() && keys.D % 2 == 0 && at + count <= keys.count;
  const std::int64_t step = may_stay ? source.step(keys.first + at, count) : 0;
  if (step <= 0 || step > most || step % std::int64_t{sizeof(T)} != 0) return {nullptr, 0};
  const auto bytes = static_cast<std::size_t>(step);
  KeyRows<T> rows{reinterpret_cast<const T*>(source.start(keys.first + at)), step,
                  bytes == keys.D / 2 * sizeof(T)};
  rows.next = rows.at(round_up(HWY_MAX(ahead / bytes, 1), count));
  return rows;
}

/// The same panel for keys that are stored as contiguous elements of 16 bits, an even number, as
/// pairs of these.
template <class T>
struct NarrowPanel {
  KeyPanel<T> keys;

  std::size_t depth() const { return keys.D / 2; }

  KeyRows<T> in_place_or_copied(std::size_t at, std::size_t at_once, std::int64_t most,
                                std::size_t ahead) const {
    const KeyRows<T> rows = pairs_in_place(keys, at, at_once, most, ahead);
    return rows.first ? rows : copied(at, at_once);
  }

 private:
  HWY_NOINLINE KeyRows<T> copied(std::size_t at, std::size_t at_once) const {
    const std::size_t present = at < keys.count ? HWY_MIN(at_once, keys.count - at) : 0;
    const Rows<T> source(keys.k, keys.D);
    const std::size_t bytes = depth() * sizeof(T);
    std::memset(keys.buffer, 0, at_once * bytes);
    for (std::size_t i = 0; i < present; ++i) {
      const std::size_t key = keys.first + at + i;
      prefetch_ahead(source, key + rows_ahead(present), keys.all);
      if (const std::byte* const row = source.start(key))
        std::memcpy(keys.buffer + i * depth(), row, bytes);
    }
    return {keys.buffer, static_cast<std::ptrdiff_t>(bytes)};
  }
};

/// The same for keys in bfloat16, as numbers or pairs. Only pairs that are stored are read in
/// place.
template <class T>
struct RoundedPanel {
  KeyPanel<T> keys;
  FactorForm factors;

  std::size_t depth() const { return depth_of(factors, keys.D); }

  HWY_NOINLINE KeyRows<T> copied(std::size_t at, std::size_t at_once) const {
    const std::size_t from = keys.first + at;
    const std::size_t present = at < keys.count ? HWY_MIN(at_once, keys.count - at) : 0;
    [[maybe_unused]] T* const rest = keys.buffer + at_once * depth();
    const Rows<T> source(keys.k, keys.D);
    if (are_pairs(factors)) {
      if constexpr (kMultipliesPairs<T>)
        copy_pairs(source, from, present, keys.all, keys.D, rest, keys.buffer);
    } else {
      copy_rows(source, from, present, keys.all, keys.D, keys.buffer);
      round_to_bfloat16(keys.buffer, present * keys.D);
    }
    set_zeros((at_once - present) * depth(), keys.buffer + present * depth());
    return {keys.buffer, static_cast<std::ptrdiff_t>(depth() * sizeof(T))};
  }

  KeyRows<T> in_place_or_copied(std::size_t at, std::size_t at_once, std::int64_t most,
                                std::size_t ahead) const {
    const bool are_stored = are_pairs(factors) && Rows<T>(keys.k, keys.D).is_plain(DType::bf16);
    const KeyRows<T> rows =
        are_stored ? pairs_in_place(keys, at, at_once, most, ahead) : KeyRows<T>{nullptr, 0};
    return rows.first ? rows : copied(at, at_once);
  }
};

/// The addresses of `Vectors` vectors of keys: those of the first kBlockLanes keys, and the
/// distances of the other blocks from these, which together fit into registers.
template <class T, std::size_t Vectors>
struct KeyCursor {
  static constexpr std::size_t kBlock = kBlockLanes<T>;
  static constexpr std::size_t kBlocks = Vectors * kLanes<T> / kBlock;
  const T* key[kBlock];
  std::ptrdiff_t step, blocks[kBlocks];  ///< in bytes

  HWY_INLINE explicit KeyCursor(const KeyRows<T>& keys) : step(keys.step) {
    for (std::size_t i = 0; i < kBlock; ++i) key[i] = keys.at(i);
    for (std::size_t i = 0; i < kBlocks; ++i)
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
template <std::size_t Part, class T, std::size_t Vectors>
HWY_INLINE void transpose_keys(const KeyCursor<T, Vectors>& keys,
                               Vec<T> (&columns)[kColumnsAtOnce<T>]) {
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

template <std::size_t Part, class T, std::size_t Vectors>
HWY_INLINE void transpose_keys(const KeyCursor<T, Vectors>& keys,
                               Vec<T> (&columns)[kColumnsAtOnce<T>]) {
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

/// The same of all vectors.
template <class T, std::size_t Vectors>
HWY_INLINE void transpose_keys(const KeyCursor<T, Vectors>& keys,
                               Vec<T> (&columns)[Vectors][kColumnsAtOnce<T>]) {
  transpose_keys<0>(keys, columns[0]);
  if constexpr (Vectors == 2) transpose_keys<1>(keys, columns[1]);
}

/// Prefetches a part of the `Keys` keys at rows.next. The calls for all columns, kColumnsAtOnce at
/// a time, prefetch all of these keys: in the order of memory, if there are no gaps, otherwise a
/// line of some keys.
template <std::size_t Keys, class T>
HWY_INLINE void prefetch_keys(const KeyRows<T>& rows, std::size_t column) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  if (rows.is_dense) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Keys * kColumnsAtOnce<T>; i += kLine)
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(rows.next) +
                                                       (column * Keys + i) * sizeof(T)));
    return;
  }
  constexpr std::size_t kLoadsPerLine = kLine / kColumnsAtOnce<T>;
  constexpr std::size_t kShare = HWY_MAX(Keys / kLoadsPerLine, 1);
  const std::size_t first = column % kLine / kColumnsAtOnce<T> * kShare;
  const auto step = static_cast<std::uintptr_t>(rows.step);
  std::uintptr_t at = reinterpret_cast<std::uintptr_t>(rows.next + column) + first * step;
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kShare; ++i, at += step)
    __builtin_prefetch(reinterpret_cast<const void*>(at));
}

/// How scores of unpacked keys are computed: from which elements, with which terms, and as how many
/// sums of every Chains-th product. Two chains, of queries in pairs, have the order of tiles.
template <class T, class Element, Term kTerm, std::size_t Chains = 1>
struct KeyProduct {
  static constexpr std::size_t kChains = Chains;
  static constexpr std::size_t kElements = kElementsPerLane<Element>;

  /// Element i of a query.
  static HWY_INLINE Vec<T> query_element(const T* query, std::size_t i, std::size_t chain) {
    const Tag<T> d;
    if constexpr (Chains == 2) {
      const hn::RebindToUnsigned<Tag<T>> d32;
      const auto pair = hn::BitCast(d32, hn::Set(d, query[i / 2]));
      return hn::BitCast(
          d, chain ? hn::And(pair, hn::Set(d32, 0xffff0000u)) : hn::ShiftLeft<16>(pair));
    } else {
      return hn::Set(d, query[i]);
    }
  }

  /// Adds query elements times the keys' columns, which start at element `first`, to the sums.
  template <std::size_t Rows, std::size_t Columns>
  static HWY_INLINE void add(const T* query, std::size_t query_step, std::size_t first,
                             const Vec<T> (&columns)[kKeyVectors][Columns],
                             Vec<T> (&sums)[Chains][Rows][kKeyVectors]) {
#pragma GCC unroll 8
    for (std::size_t k = 0; k < Columns; ++k) {
      Vec<T> keys[kElements][kKeyVectors];
#pragma GCC unroll 8
      for (std::size_t j = 0; j < kKeyVectors; ++j)
        each_factor<T, Element>(columns[j][k], [&](std::size_t i, Vec<T> factors)
                                                   ATTN_INLINE { keys[i][j] = factors; });
#pragma GCC unroll 2
      for (std::size_t e = 0; e < kElements; ++e) {
        const std::size_t chain = (k * kElements + e) % Chains;
#pragma GCC unroll 16
        for (std::size_t i = 0; i < Rows; ++i) {
          const Vec<T> element =
              query_element(query + i * query_step, first + k * kElements + e, chain);
#pragma GCC unroll 8
          for (std::size_t j = 0; j < kKeyVectors; ++j)
            sums[chain][i][j] = add_term<T, kTerm>(element, keys[e][j], sums[chain][i][j]);
        }
      }
    }
  }
};

/// multiply_tile() for `keys` and their lanes [from, to); `cursor` is at lane `from`.
template <class T, class Product, std::size_t Rows, class Finish>
HWY_INLINE void multiply_keys(std::size_t from, std::size_t to, const T* query,
                              std::size_t query_step, const KeyRows<T>& keys,
                              KeyCursor<T, kKeyVectors>& cursor, Finish finish) {
  constexpr std::size_t kColumns = kColumnsAtOnce<T>, kElements = Product::kElements;
  Vec<T> sums[Product::kChains][Rows][kKeyVectors];
  for (auto& chain : sums)
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Rows; ++i)
      unrolled<kKeyVectors>([&](std::size_t j) ATTN_INLINE { chain[i][j] = hn::Zero(Tag<T>()); });
  std::size_t column = from;
#pragma GCC unroll 1
  for (; column + kColumns <= to; column += kColumns) {
    if (keys.next) prefetch_keys<kKeysAtOnce<T>>(keys, column);
    Vec<T> columns[kKeyVectors][kColumns];
    transpose_keys(cursor, columns);
    cursor.advance(kColumns);
    Product::add(query, query_step, column * kElements, columns, sums);
  }
  const auto add_rest = [&](auto count) ATTN_INLINE {
    constexpr std::size_t kCount = decltype(count)::value;
    HWY_ALIGN T elements[kKeysAtOnce<T>];
    const Tag<T> d;
    Vec<T> columns[kKeyVectors][kCount];
    for (std::size_t k = 0; k < kCount; ++k) {
      for (std::size_t i = 0; i < kKeysAtOnce<T>; ++i) elements[i] = keys.at(i)[column + k];
      for (std::size_t j = 0; j < kKeyVectors; ++j)
        columns[j][k] = hn::Load(d, elements + j * kLanes<T>);
    }
    Product::add(query, query_step, column * kElements, columns, sums);
  };
  // The first of the remaining elements is of the first chain.
  constexpr std::size_t kStep = Product::kChains > kElements ? Product::kChains / kElements : 1;
  for (; column + kStep <= to; column += kStep) add_rest(Constant<kStep>());
  if (kStep > 1 && column < to) add_rest(Constant<1>());
  if constexpr (Product::kChains == 2)
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Rows; ++i)
      for (std::size_t j = 0; j < kKeyVectors; ++j)  // a tile adds to 0
        sums[0][i][j] = hn::Add(hn::Add(sums[0][i][j], sums[1][i][j]), hn::Zero(Tag<T>()));
  finish(sums[0]);
}

/// The products of `keys`, as sum_parts() of `depth` elements, which are passed to `finish`.
template <class T, class Product, std::size_t Rows, class Finish>
HWY_INLINE void sum_keys(const T* query, std::size_t query_step, std::size_t depth,
                         const KeyRows<T>& keys, T* out, std::size_t out_stride, Finish finish) {
  KeyCursor<T, kKeyVectors> cursor(keys);
  sum_parts<T, Rows, kKeyVectors>(
      0, depth, out, out_stride,
      [&](std::size_t part, std::size_t next, auto f) ATTN_INLINE {
        multiply_keys<T, Product, Rows>(part / Product::kElements, next / Product::kElements, query,
                                        query_step, keys, cursor, f);
      },
      finish);
}

/// score_rows() for one panel of unpacked keys.
template <class T, class Element, Term kTerm = Term::product, class Panel = KeyPanel<T>>
void score_keys(std::size_t rows, std::size_t vectors, const T* query, const Panel& panel, T scale,
                T* out, std::size_t out_stride, T* running_max) {
  using Product = KeyProduct<T, Element, kTerm>;
  with_constant<kTileRows>(rows, [=, &panel](auto r) {
    constexpr std::size_t kRows = decltype(r)::value;
    const Vec<T> factor = hn::Set(Tag<T>(), scale);
    const std::size_t depth = panel.depth() * Product::kElements;
    for (std::size_t at = 0; at < vectors * kLanes<T>; at += kKeysAtOnce<T>) {
      const KeyRows<T> keys =
          panel.in_place_or_copied(at, kKeysAtOnce<T>, kMostStepInPlace, kBytesAheadOfKeys);
      sum_keys<T, Product, kRows>(
          query, depth, depth, keys, out + at, out_stride, [&](auto& sums) ATTN_INLINE {
#pragma GCC unroll 16
            for (std::size_t i = 0; i < kRows; ++i)
              store_scores<T>(sums[i], factor, out + at + i * out_stride,
                              running_max ? running_max + i * kLanes<T> : nullptr);
          });
    }
  });
}

/// score_keys() for keys of any element type as numbers, or rounded ones.
template <class T>
void score_numbers(std::size_t rows, std::size_t vectors, const T* query, const KeyPanel<T>& panel,
                   bool rounds, T scale, T* out, std::size_t out_stride, T* running_max) {
  const auto score = [&]<class Element>(Type<Element>, const auto& of) {
    score_keys<T, Element>(rows, vectors, query, of, scale, out, out_stride, running_max);
  };
  const bool scored =
      panel.D % 2 == 0 && with_element(Rows<T>(panel.k, panel.D), rounds, [&](auto element) {
        if constexpr (kIsNarrow<typename decltype(element)::type>)
          score(element, NarrowPanel<T>{panel});
        else
          score(element, panel);
      });
  if (scored) return;
  if constexpr (std::is_same_v<T, float>)
    if (rounds) return score(Type<Rounded<T>>(), panel);
  score(Type<T>(), panel);
}

#if ATTN_HAS_PAIRS
/// While it exists, subnormal operands and results of this thread count as 0.
class FlushesSubnormals {
 public:
  FlushesSubnormals() { _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushesSubnormals() { _mm_setcsr(saved_); }
  FlushesSubnormals(const FlushesSubnormals&) = delete;
  FlushesSubnormals& operator=(const FlushesSubnormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;  // of MXCSR
  unsigned saved_ = _mm_getcsr();
};

/// The most rows for which vectors add products in the order of tiles faster than tiles do.
inline constexpr std::size_t kMostRowsAsInTiles = 2;

/// out = the unscaled scores of up to kMostRowsAsInTiles queries in pairs, in the order of tiles.
/// Subnormal numbers must be flushed.
template <class Element, class Panel>
HWY_NOINLINE void sum_keys_as_in_tiles(std::size_t rows, std::size_t vectors, const float* query,
                                       const Panel& panel, float* out, std::size_t out_stride) {
  using Product = KeyProduct<float, Element, Term::product, 2>;
  with_constant<kMostRowsAsInTiles>(rows, [=, &panel](auto r) {
    constexpr std::size_t kRows = decltype(r)::value;
    const std::size_t depth = panel.depth() * Product::kElements;
    for (std::size_t at = 0; at < vectors * kLanes<float>; at += kKeysAtOnce<float>) {
      const KeyRows<float> keys =
          panel.in_place_or_copied(at, kKeysAtOnce<float>, kMostStepInPlace, kBytesAheadOfKeys);
      sum_keys<float, Product, kRows>(
          query, (depth + 1) / 2, depth, keys, out + at, out_stride, [&](auto& sums) {
            for (std::size_t i = 0; i < kRows; ++i)
              for (std::size_t j = 0; j < kKeyVectors; ++j)
                hn::Store(sums[i][j], Tag<float>(), out + at + i * out_stride + j * kLanes<float>);
          });
    }
  });
}

/// score_keys_in_tiles() for up to kMostRowsAsInTiles queries in pairs, with the same bits. Returns
/// whether the keys' elements have a type for it.
inline HWY_NOINLINE bool score_keys_as_in_tiles(std::size_t rows, std::size_t vectors,
                                                const float* queries, const KeyPanel<float>& panel,
                                                bool rounds, float scale, float* out,
                                                std::size_t out_stride, float* running_max) {
  if (rows > kMostRowsAsInTiles || panel.D % 2 != 0) return false;
  const auto sum = [&](auto element) {
    using Element = typename decltype(element)::type;
    const FlushesSubnormals flush;
    if constexpr (kIsNarrow<Element>)
      sum_keys_as_in_tiles<Element>(rows, vectors, queries, NarrowPanel<float>{panel}, out,
                                    out_stride);
    else
      sum_keys_as_in_tiles<Element>(rows, vectors, queries, panel, out, out_stride);
  };
  const Rows<float> keys(panel.k, panel.D);
  const bool summed = rounds ? with_element_as_in_tiles<true>(keys, sum)
                             : with_element_as_in_tiles<false>(keys, sum);
  if (!summed) return false;
  const Tag<float> d;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t at = 0; at < vectors * kLanes<float>; at += kLanes<float>) {
      float* const to = out + i * out_stride + at;
      Vec<float> sums[1] = {hn::Load(d, to)};
      store_scores<float>(sums, hn::Set(d, scale), to,
                          running_max ? running_max + i * kLanes<float> : nullptr);
    }
  return true;
}

/// score_keys() in two tiles of keys, as keys times `queries` (depth, rows).
inline HWY_NOINLINE void score_keys_in_tiles(std::size_t rows, std::size_t vectors,
                                             const float* queries, const RoundedPanel<float>& panel,
                                             float scale, float* out, std::size_t out_stride,
                                             float* running_max) {
  static_assert(kTileHeight == kLanes<float>);
  constexpr std::size_t kTiles = 2, kKeys = kTiles * kTileHeight;
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> d32;
  const auto row_step = hn::Mul(hn::Iota(d32, 0), hn::Set(d32, static_cast<std::int32_t>(rows)));
  const std::size_t depth = panel.depth(), whole = depth - depth % kStepPairs;
  const TileUse use(kTileHeight, rows, depth);
  HWY_ALIGN float products[kKeys * kTileRows];  // (keys, rows)
  for (std::size_t at = 0; at < vectors * kLanes<float>; at += kKeys) {
    const KeyRows<float> keys = panel.in_place_or_copied(at, kKeys, kMostStepInPlace, kBytesAhead);
    const auto step = static_cast<std::size_t>(keys.step) / sizeof(float);
    clear_tile<0>();
    clear_tile<1>();
    for (std::size_t k = 0; k < whole; k += kStepPairs) {
      if (keys.next)
        for (std::size_t part = 0; part < kStepPairs; part += kColumnsAtOnce<float>)
          prefetch_keys<kKeys>(keys, k + part);
      add_step_of_keys<kLeft, kRight>(keys.first + k, step, queries + k * rows, rows);
    }
    if (whole < depth)
      add_step_of_keys<kLastLeft, kLastRight>(keys.first + whole, step, queries + whole * rows,
                                              rows);
    store_tile<0>(products, rows);
    store_tile<1>(products + kTileHeight * rows, rows);
    for (std::size_t i = 0; i < rows; ++i) {
      Vec<float> sums[kTiles];
      for (std::size_t j = 0; j < kTiles; ++j)
        sums[j] = hn::GatherIndex(d, products + j * kTileHeight * rows + i, row_step);
      store_scores<float>(sums, hn::Set(d, scale), out + at + i * out_stride,
                          running_max ? running_max + i * kLanes<float> : nullptr);
    }
  }
}
#endif

}  // namespace attn::kernel::HWY_NAMESPACE
