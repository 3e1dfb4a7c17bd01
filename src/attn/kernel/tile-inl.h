// The micro-kernel: a tile of C = A B in registers, where B is packed or has whole vectors in rows.
#pragma once

#include <type_traits>

#include "attn/kernel/amx-inl.h"
#include "attn/kernel/kernels.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/terms-inl.h"
#include "attn/kernel/tile_avx2-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

// Tiles that fill the registers: 6 x 4 vectors of 32 registers (24 sums, 4 of B, 1 of A), 6 x 2
// of 16.
inline constexpr std::size_t kTileRows = 6;
inline constexpr std::size_t kGroupRows = 4 * kTileRows;  ///< rows that are computed together
/// Likewise, if values are multiplied in tiles of AMX, which cost as much with fewer rows.
inline constexpr std::size_t kValueTileRows = 16;
inline constexpr std::size_t kTileVectors = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;
template <class T>
inline constexpr std::size_t kPanel = kTileVectors* kLanes<T>;

/// Processors without AVX-512 often have a level 1 cache of only 32 KiB. A panel of keys, or a
/// slice of the values, is then multiplied for all tiles of a group before the next one is read.
inline constexpr bool kPanelsFirst = HWY_TARGET == HWY_AVX2;

/// Prefetches `count` elements.
template <class T>
HWY_INLINE void prefetch_elements(const T* from, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 64 / sizeof(T)) __builtin_prefetch(from + i);
}

/// Calls f(sum, address) for each sum of a tile, with consecutive addresses.
template <class T, std::size_t Rows, std::size_t Vectors, class At, class F>
HWY_INLINE void each_sum(Vec<T> (&sums)[Rows][Vectors], At* at, F f) {
#pragma GCC unroll 16
  for (std::size_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < Vectors; ++j) f(sums[i][j], at + (i * Vectors + j) * kLanes<T>);
}

/// Computes a tile of A B and passes it to finish(sums): sums[i][j] is row i of A (depth elements,
/// rows a_stride apart) times vector j of the columns of B (depth rows, b_stride apart). Terms are
/// added in the order of the depth for every tile size, so that a row's result does not depend on
/// its neighbours. `earlier`: the sums of earlier terms, as in each_sum(), or nullptr.
template <class T, std::size_t Rows, std::size_t Vectors, Term kTerm = Term::product, class BStride,
          class Finish>
HWY_INLINE void multiply_tile(std::size_t depth, const T* a, std::size_t a_stride, const T* b,
                              BStride b_stride, const T* earlier, Finish finish) {
  const Tag<T> d;
  Vec<T> sums[Rows][Vectors];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < Vectors; ++j) sums[i][j] = hn::Zero(d);
  if (earlier != nullptr)
    each_sum<T>(sums, earlier,
                [&](Vec<T>& sum, const T* at) ATTN_INLINE { sum = hn::Load(d, at); });
#if ATTN_UNROLLED_TILES
  if constexpr (Rows == 6 && Vectors == 2 && kTerm == Term::product) {
    const std::size_t whole = depth - depth % kSteps;
    multiply_unrolled<T>(whole, a, a_stride, b, b_stride, sums);
    a += whole;
    b += whole * b_stride;
    depth -= whole;
  }
#endif
#pragma GCC unroll 1
  for (std::size_t k = 0; k < depth; ++k, b += b_stride) {
    Vec<T> b_row[Vectors];
#pragma GCC unroll 8
    for (std::size_t j = 0; j < Vectors; ++j) b_row[j] = hn::LoadU(d, b + j * kLanes<T>);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Rows; ++i) {
      const Vec<T> a_element = hn::Set(d, a[i * a_stride + k]);
#pragma GCC unroll 8
      for (std::size_t j = 0; j < Vectors; ++j)
        sums[i][j] = add_term<T, kTerm>(a_element, b_row[j], sums[i][j]);
    }
  }
  finish(sums);
}

/// The number of terms that are added one by one. Rounding errors grow with this length; adding the
/// sums of shorter parts is more accurate, but slower.
template <class T>
inline constexpr std::size_t kSumDepth = std::is_same_v<T, float> ? 32 : 128;

/// Splits [from, to) into parts [part, next), calls multiply(part, next, f), which passes the
/// part's sums to f, and calls finish() with the total. As the registers are full, totals are kept
/// in `buffer`, rows buffer_stride apart. Parts end at multiples of kSumDepth, wherever the first
/// one begins, so that leading and trailing zeros do not change the result.
template <class T, std::size_t Rows, std::size_t Vectors, class Multiply, class Finish>
HWY_INLINE void sum_parts(std::size_t from, std::size_t to, T* buffer, std::size_t buffer_stride,
                          Multiply multiply, Finish finish) {
  const Tag<T> d;
  const auto each = [&](auto& sums, auto f) ATTN_INLINE {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (std::size_t j = 0; j < Vectors; ++j)
        f(sums[i][j], buffer + i * buffer_stride + j * kLanes<T>);
  };
  bool first = true;
  std::size_t next = from;
  do {
    const std::size_t part = next;
    next = HWY_MIN(to, round_up(part + 1, kSumDepth<T>));
    multiply(part, next, [&](auto& sums) ATTN_INLINE {
      // Separate cases; merged, they would copy sums between registers.
      if (first && next != to)
        return each(sums, [&](Vec<T>& sum, T* at) ATTN_INLINE { hn::Store(sum, d, at); });
      if (next != to)
        return each(sums, [&](Vec<T>& sum, T* at)
                              ATTN_INLINE { hn::Store(hn::Add(hn::Load(d, at), sum), d, at); });
      if (!first)
        each(sums, [&](Vec<T>& sum, T* at) ATTN_INLINE { sum = hn::Add(hn::Load(d, at), sum); });
      finish(sums);
    });
    first = false;
  } while (next != to);
}

/// multiply_tile() over [from, to) of the depth, in parts.
template <class T, std::size_t Rows, std::size_t Vectors, Term kTerm = Term::product, class BStride,
          class Finish>
HWY_INLINE void multiply_in_parts(std::size_t from, std::size_t to, const T* a,
                                  std::size_t a_stride, const T* b, BStride b_stride, T* buffer,
                                  std::size_t buffer_stride, Finish finish) {
  sum_parts<T, Rows, Vectors>(
      from, to, buffer, buffer_stride,
      [&](std::size_t part, std::size_t next, auto f) ATTN_INLINE {
        multiply_tile<T, Rows, Vectors, kTerm>(next - part, a + part, a_stride, b + part * b_stride,
                                               b_stride, nullptr, f);
      },
      finish);
}

/// Calls f(Constant<count>()), for 1 <= count <= Most.
template <std::size_t Most, class F>
HWY_INLINE void with_constant(std::size_t count, F f) {
  if constexpr (Most > 1) {
    if (count < Most) return with_constant<Most - 1>(count, f);
  }
  f(Constant<Most>());
}

/// The max vectors of a tile with `rows` rows.
constexpr std::size_t max_vectors(std::size_t rows) {
  return rows <= 2 ? 2 * kTileVectors : kTileVectors;
}

/// Stores one row's scaled sums and updates its running maximum, if there is one.
template <class T, std::size_t Vectors>
HWY_INLINE void store_scores(Vec<T> (&sums)[Vectors], Vec<T> scale, T* out, T* running_max) {
  const Tag<T> d;
#pragma GCC unroll 8
  for (std::size_t j = 0; j < Vectors; ++j) {
    sums[j] = hn::Mul(sums[j], scale);
    hn::Store(sums[j], d, out + j * kLanes<T>);
  }
  if (running_max == nullptr) return;
  Vec<T> max = hn::Load(d, running_max);
#pragma GCC unroll 8
  for (std::size_t j = 0; j < Vectors; ++j) max = update_max<T>(max, sums[j]);
  hn::Store(max, d, running_max);
}

/// Rows [first, last): whole tiles, or fewer rows than one tile.
struct TileRows {
  std::size_t first, last;
  std::size_t of_tile() const { return HWY_MIN(last - first, kTileRows); }
};

/// Calls f(TileRows) for all of `rows`.
template <class F>
HWY_INLINE void in_tiles(std::size_t rows, F f) {
  const std::size_t whole = rows - rows % kTileRows;
  if (whole > 0) f(TileRows{0, whole});
  if (whole < rows) f(TileRows{whole, rows});
}

#if ATTN_HAS_PAIRS
/// multiply_panels() in the tiles of AMX, for any number of rows.
template <class Finish>
HWY_INLINE void multiply_panels_in_tiles(const TileRows& rows, std::size_t panels,
                                         std::size_t depth, const float* query, const float* keys,
                                         float* out, std::size_t out_stride, Finish finish) {
  static_assert(kTilePanel == kPanel<float>);
  const Tag<float> d;
  std::size_t tiles = (rows.last - rows.first + kTileHeight - 1) / kTileHeight;
  for (std::size_t row = rows.first, next; row < rows.last; row = next, --tiles) {
    next = row + (rows.last - row + tiles - 1) / tiles;
    const TileUse use(next - row, kLanes<float>, depth);
    for (std::size_t panel = 0; panel < panels; ++panel) {
      float* at = out + row * out_stride + panel * kPanel<float>;
      multiply_panel(query + row * depth, depth, keys + panel * kPanel<float> * depth, at,
                     out_stride);
      for (std::size_t i = row; i < next; ++i, at += out_stride) {
        Vec<float> sums[kTileVectors];
        unrolled<kTileVectors>([&](std::size_t j)
                                   ATTN_INLINE { sums[j] = hn::Load(d, at + j * kLanes<float>); });
        finish(i, panel, sums, at);
      }
    }
  }
}
#endif

/// Multiplies queries and `panels` panels of keys and calls finish(row, panel, sums, at) for each
/// row of each panel, where `at` is the row's address in `out`. One call computes all tiles,
/// because its prologue costs as much as several steps of a product.
template <class T, Term kTerm, std::size_t Rows, std::size_t Vectors, class Finish>
HWY_INLINE void multiply_panels(const TileRows& rows, std::size_t panels, std::size_t depth,
                                const T* query, const T* keys, T* out, std::size_t out_stride,
                                Finish finish) {
  if constexpr (kTerm == Term::tiles) {
#if ATTN_HAS_PAIRS
    multiply_panels_in_tiles(rows, panels, depth, query, keys, out, out_stride, finish);
#endif
  } else {
    const auto multiply = [&](std::size_t row, std::size_t panel) ATTN_INLINE {
      T* at = out + row * out_stride + panel * kPanel<T>;
      multiply_in_parts<T, Rows, Vectors, kTerm>(
          0, depth, query + row * depth, depth, keys + panel * kPanel<T> * depth,
          Constant<kPanel<T>>(), at, out_stride, [&](auto& sums) ATTN_INLINE {
#pragma GCC unroll 16
            for (std::size_t i = 0; i < Rows; ++i)
              finish(row + i, panel, sums[i], at + i * out_stride);
          });
    };
    if constexpr (kPanelsFirst)
      for (std::size_t panel = 0; panel < panels; ++panel)
        for (std::size_t row = rows.first; row < rows.last; row += Rows) multiply(row, panel);
    else
      for (std::size_t row = rows.first; row < rows.last; row += Rows)
        for (std::size_t panel = 0; panel < panels; ++panel) multiply(row, panel);
  }
}

/// score_rows() for some rows. Tiles with few rows always compute all vectors: these additions are
/// hidden by the latency of the others, and fewer variants compile faster.
template <class T, Term kTerm>
HWY_NOINLINE void score_tiles(const TileRows& rows, std::size_t vectors, std::size_t panels,
                              std::size_t depth, const T* query, const T* keys, const T& scale,
                              T* out, std::size_t out_stride, T* running_max) {
  const auto tiles = [=, &rows, &scale](auto r, auto v) {
    constexpr std::size_t kRows = decltype(r)::value, kVectors = decltype(v)::value;
    multiply_panels<T, kTerm, kRows, kVectors>(
        rows, panels, depth, query, keys, out, out_stride,
        [&](std::size_t row, std::size_t, auto& sums, T* at) ATTN_INLINE {
          store_scores<T>(sums, hn::Set(Tag<T>(), scale), at,
                          running_max ? running_max + row * kLanes<T> : nullptr);
        });
  };
  if constexpr (kTerm == Term::tiles) {
    tiles(Constant<kTileRows>(), Constant<kTileVectors>());
  } else {
    if (rows.of_tile() == kTileRows)
      return with_constant<kTileVectors>(vectors, [&](auto v) { tiles(Constant<kTileRows>(), v); });
    with_constant<kTileRows - 1>(rows.of_tile(),
                                 [&](auto r) { tiles(r, Constant<kTileVectors>()); });
  }
}

/// out = scale * (A B) for `panels` panels of keys, at least the first `vectors` vectors of each.
/// Updates running_max, one vector for each row, unless it is nullptr.
template <class T, Term kTerm = Term::product>
void score_rows(std::size_t rows, std::size_t vectors, std::size_t panels, std::size_t depth,
                const T* query, const T* keys, T scale, T* out, std::size_t out_stride,
                T* running_max) {
  const auto score = [=](const TileRows& some) {
    score_tiles<T, kTerm>(some, vectors, panels, depth, query, keys, scale, out, out_stride,
                          running_max);
  };
  if constexpr (kTerm == Term::tiles)
    score({0, rows});
  else
    in_tiles(rows, score);
}

/// The weights of tanh in scores, one for each element of a query.
template <class T>
struct TanhWeights {
  const T* each;
  std::size_t count;
};

/// score_rows() of sums of weights * tanh(query + key). A tanh takes so many instructions that rows
/// need not share the keys in registers.
template <class T>
HWY_NOINLINE void score_tanh_rows(std::size_t rows, std::size_t panels,
                                  const TanhWeights<T>& weights, const T* query, const T* keys,
                                  T scale, T* out, std::size_t out_stride, T* running_max) {
  const Tag<T> d;
  const Softcap<T> tanh(1);
  const std::size_t depth = weights.count;
  for (std::size_t row = 0; row < rows; ++row, query += depth)
    for (std::size_t panel = 0; panel < panels; ++panel) {
      T* const at = out + row * out_stride + panel * kPanel<T>;
      const T* const panel_keys = keys + panel * kPanel<T> * depth;
      sum_parts<T, 1, kTileVectors>(
          0, depth, at, out_stride,
          [&](std::size_t from, std::size_t to, auto f) ATTN_INLINE {
            Vec<T> sums[1][kTileVectors];
            unrolled<kTileVectors>([&](std::size_t j) ATTN_INLINE { sums[0][j] = hn::Zero(d); });
            for (std::size_t i = from; i < to; ++i) {
              const Vec<T> element = hn::Set(d, query[i]), weight = hn::Set(d, weights.each[i]);
              unrolled<kTileVectors>([&](std::size_t j) ATTN_INLINE {
                const Vec<T> key = hn::Load(d, panel_keys + i * kPanel<T> + j * kLanes<T>);
                sums[0][j] = hn::MulAdd(weight, tanh(hn::Add(element, key)), sums[0][j]);
              });
            }
            f(sums);
          },
          [&](auto& sums) ATTN_INLINE {
            store_scores<T>(sums[0], hn::Set(d, scale), at,
                            running_max ? running_max + row * kLanes<T> : nullptr);
          });
    }
}

/// The operands of value_tiles(): weights of keys [from, to) of a block, and their values. If
/// values are pairs, `from`, `to` and strides count pairs of keys.
template <class T>
struct ValueProduct {
  std::size_t from, to;
  const T* weights;  ///< of key 0, rows weights_stride apart
  std::size_t weights_stride;
  const T* values;  ///< of key 0, keys values_stride apart
  std::size_t values_stride;
};

/// The target of products of weights and values: rows `stride` apart with one factor for each row.
template <class T>
struct Sums {
  T* out;
  std::size_t stride;
  const T* keep;  ///< out = keep * out + add * sum; nullptr: out = add * sum
  const T* add;
};

/// Scales a tile of sums and adds it to rows of `to` from row `row` on, in vectors from `first` on.
template <class T, std::size_t Rows, std::size_t Vectors>
HWY_INLINE void add_tile(const Vec<T> (&sums)[Rows][Vectors], std::size_t row, std::size_t first,
                         const Sums<T>& to) {
  const Tag<T> d;
  const std::size_t stride = to.stride;
  T* const out = to.out + row * stride + first * kLanes<T>;
  const T* const add = to.add + row;
  const auto each = [&](auto added) ATTN_INLINE {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (std::size_t j = 0; j < Vectors; ++j) {
        T* at = out + i * stride + j * kLanes<T>;
        hn::StoreU(added(hn::Mul(sums[i][j], hn::Set(d, add[i])), i, at), d, at);
      }
  };
  if (to.keep == nullptr)  // -0 becomes +0, as in finish()
    return each([&](Vec<T> sum, std::size_t, const T*)
                    ATTN_INLINE { return hn::Add(sum, hn::Zero(d)); });
  const T* const keep = to.keep + row;
  each([&](Vec<T> sum, std::size_t i, const T* at)
           ATTN_INLINE { return hn::MulAdd(hn::LoadU(d, at), hn::Set(d, keep[i]), sum); });
}

/// value_tiles() for vectors [first, first + Vectors), in tiles of Rows rows.
template <class T, Term kTerm, std::size_t Rows, std::size_t Vectors>
HWY_INLINE void value_tiles_of(const TileRows& rows, std::size_t first,
                               const ValueProduct<T>& product, const Sums<T>& to) {
  HWY_ALIGN T buffer[Rows * Vectors * kLanes<T>];
  for (std::size_t row = rows.first; row < rows.last; row += Rows)
    multiply_in_parts<T, Rows, Vectors, kTerm>(
        product.from, product.to, product.weights + row * product.weights_stride,
        product.weights_stride, product.values + first * kLanes<T>, product.values_stride, buffer,
        Vectors * kLanes<T>, [&](auto& sums) ATTN_INLINE { add_tile<T>(sums, row, first, to); });
}

/// Splits [at, count) into ranges whose lengths n are powers of two up to Most and calls
/// f(Constant<n>(), start) for each.
template <std::size_t Most, class F>
HWY_INLINE void in_powers_of_two(std::size_t count, F f, std::size_t at = 0) {
  for (; count - at >= Most; at += Most) f(Constant<Most>(), at);
  if constexpr (Most > 1) in_powers_of_two<Most / 2>(count, f, at);
}

/// value_tiles() for fewer rows than a tile has. Only frequent tile sizes are compiled; others are
/// composed of narrower tiles with one or two rows.
template <class T, Term kTerm>
void value_tail(const TileRows& rows, std::size_t vectors, const ValueProduct<T>& product,
                const Sums<T>& to) {
  std::size_t done = 0;
  with_constant<kTileRows - 1>(rows.of_tile(), [&](auto r) {
    constexpr std::size_t kRows = decltype(r)::value, kMaxVectors = max_vectors(kRows);
    for (; done + kMaxVectors <= vectors; done += kMaxVectors)
      value_tiles_of<T, kTerm, kRows, kMaxVectors>(rows, done, product, to);
    if (kMaxVectors > kTileVectors && done + kTileVectors <= vectors) {
      value_tiles_of<T, kTerm, kRows, kTileVectors>(rows, done, product, to);
      done += kTileVectors;
    }
  });
  if (done == vectors) return;
  for (std::size_t row = rows.first, next; row < rows.last; row = next) {
    next = HWY_MIN(row + 2, rows.last);
    with_constant<2>(next - row, [&](auto r) {
      in_powers_of_two<kTileVectors / 2>(
          vectors,
          [&](auto v, std::size_t at) {
            value_tiles_of<T, kTerm, decltype(r)::value, decltype(v)::value>({row, next}, at,
                                                                             product, to);
          },
          done);
    });
  }
}

/// Adds weights * values to some rows.
template <class T, Term kTerm = Term::product>
HWY_NOINLINE void value_tiles(const TileRows& rows, std::size_t vectors,
                              const ValueProduct<T>& product, const Sums<T>& to) {
  if (rows.of_tile() < kTileRows) return value_tail<T, kTerm>(rows, vectors, product, to);
  with_constant<kTileVectors>(vectors, [&](auto v) {
    value_tiles_of<T, kTerm, kTileRows, decltype(v)::value>(rows, 0, product, to);
  });
}

/// The panels and the keys of values that value_panels() reads at once: together with as many
/// weights and with the sums, they take less than 32 KiB.
inline constexpr std::size_t kPanelsAtOnce = 4, kKeysOfSlice = 32;

/// value_tiles() for whole tiles and panels of values, `step` elements apart. Each slice of keys is
/// multiplied for all tiles and panels before the next one, so that values and weights are read
/// from the level 2 cache only once.
template <class T>
HWY_NOINLINE void value_panels(const TileRows rows, std::size_t panels, std::size_t step,
                               const ValueProduct<T> product, const Sums<T> to) {
  const Tag<T> d;
  constexpr std::size_t kTile = kTileRows * kTileVectors * kLanes<T>;
  constexpr std::size_t kTiles = kGroupRows / kTileRows * kPanelsAtOnce;
  constexpr bool kSlices = kKeysOfSlice < kSumDepth<T>;  // a part is several slices
  HWY_ALIGN T total[kTiles * kTile], part[kSlices ? kTiles * kTile : 1];
  for (std::size_t key = product.from, next; key < product.to; key = next) {
    next = HWY_MIN(product.to, round_up(key + 1, kKeysOfSlice));
    const bool begins = !kSlices || key == product.from || key % kSumDepth<T> == 0;
    const bool ends = !kSlices || next == product.to || next % kSumDepth<T> == 0;
    const bool first = round_up(key + 1, kSumDepth<T>) == round_up(product.from + 1, kSumDepth<T>);
    const bool last = next == product.to;
    std::size_t at = 0;
    for (std::size_t panel = 0; panel < panels; ++panel)
      for (std::size_t row = rows.first; row < rows.last; row += kTileRows, at += kTile)
        multiply_tile<T, kTileRows, kTileVectors>(
            next - key, product.weights + row * product.weights_stride + key,
            product.weights_stride, product.values + panel * step + key * product.values_stride,
            product.values_stride, begins ? nullptr : part + at, [&](auto& sums) ATTN_INLINE {
              const auto store = [&](Vec<T>& sum, T* into) ATTN_INLINE { hn::Store(sum, d, into); };
              if (!ends) return each_sum<T>(sums, part + at, store);
              if (!first)
                each_sum<T>(sums, total + at, [&](Vec<T>& sum, const T* from) ATTN_INLINE {
                  sum = hn::Add(hn::Load(d, from), sum);
                });
              if (last) return add_tile<T>(sums, row, panel * kTileVectors, to);
              each_sum<T>(sums, total + at, store);
            });
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
