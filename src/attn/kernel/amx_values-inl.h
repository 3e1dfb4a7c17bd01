// Products of weights and values in bfloat16 in the tiles of AMX. Unless the problem rounds
// weights, a weight is the sum of three bfloat16 numbers, which are multiplied separately (Henry,
// Tang, Heinecke: Leveraging the bfloat16 artificial intelligence datatype for higher-precision
// computations, arXiv:1904.06376). Parts of a weight, values and products below 2^-126 count as 0.
//
// Layout of packed values: [key block][column / 16][key / 32][pair][16], where a pair
// is two neighbouring keys in the bits of one float, the first in the lower. Zeros follow the last
// key and the last column, and replace NaN and infinite values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "attn/kernel/amx-inl.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/tile-inl.h"
#include "attn/kernel/value_pairs-inl.h"

#if ATTN_HAS_PAIRS
namespace attn::kernel::HWY_NAMESPACE {

inline constexpr std::size_t kExactParts = 3;  ///< of a weight, 8 bits each
inline constexpr std::size_t kTileElements = kTileHeight * kStepPairs;
static_assert(kStepKeys == 2 * kStepPairs && kValueTileRows <= kTileHeight);

/// The upper 16 bits of the lanes of a, then of b.
HWY_INLINE __m512i upper_halves(__m512i a, __m512i b) {
  static constexpr auto kOdd = [] {
    std::array<std::int16_t, 32> odd{};
    for (std::size_t i = 0; i < odd.size(); ++i) odd[i] = static_cast<std::int16_t>(2 * i + 1);
    return odd;
  }();
  return _mm512_permutex2var_epi16(a, _mm512_loadu_si512(kOdd.data()), b);
}

/// Packs values [first, first + count), at most kKeyBlock, into their key block. `widened`: memory
/// for two rows.
inline ValueKind pack_values_in_tiles(const Matrix& v, std::size_t first, std::size_t count,
                                      std::size_t Dv, float* widened, float* packed) {
  const ValuePairs values(v, Dv, widened);
  const std::size_t tile_step = key_steps(count) * kTileElements;
  bool non_finite = false;
  for (std::size_t key = 0; key < count; key += kStepKeys, packed += kTileElements)
    non_finite |= values.store<true>(first + key, HWY_MIN(kStepKeys, count - key), kStepKeys, 0,
                                     round_up(Dv, kLanes<float>) / kLanes<float>, packed,
                                     {.vector = tile_step, .pair = kLanes<float>});
  return non_finite ? ValueKind::non_finite : ValueKind::packed;
}

/// The parts of the weights of a step, for up to kTileHeight rows. A single part is rounded.
template <std::size_t Parts>
struct WeightTiles {
  HWY_ALIGN float of[Parts][kTileElements] = {};

  /// Keys [from, to) of the step; the weights of others count as 0.
  HWY_INLINE void split(std::size_t rows, const float* weights, std::size_t stride,
                        std::size_t from, std::size_t to) {
    const auto used = static_cast<__mmask32>((std::uint64_t{1} << HWY_MIN(to, kStepKeys)) -
                                             (std::uint64_t{1} << from));
    const __m512i upper_bits = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (std::size_t r = 0; r < rows; ++r, weights += stride) {
      __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(used), weights);
      __m512 b = _mm512_maskz_loadu_ps(static_cast<__mmask16>(used >> 16), weights + kLanes<float>);
      if constexpr (Parts == 1) {
        const Vec<float> pairs = rounded_pairs(Vec<float>{a}, Vec<float>{b});
        hn::Store(pairs, Tag<float>(), of[0] + r * kStepPairs);
        continue;
      }
      unrolled<Parts>([&](std::size_t part) ATTN_INLINE {
        const __m512i a_bits = _mm512_castps_si512(a), b_bits = _mm512_castps_si512(b);
        _mm512_store_si512(of[part] + r * kStepPairs, upper_halves(a_bits, b_bits));
        a = _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_and_si512(a_bits, upper_bits)));
        b = _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_and_si512(b_bits, upper_bits)));
      });
    }
  }
};

/// By how many steps values are prefetched.
inline constexpr std::size_t kStepsAhead = 3;

// The registers: kTileSums sums, the parts of the weights, a tile of values.
inline constexpr int kFirstWeights = kTileSums, kValues = kTileSums + int{kExactParts};

/// Computes the sums of up to kTileHeight rows and `Vectors` times 16 columns. values_of(key, slot)
/// returns the first tile of the step that starts at `key`; the others are `tile_step`
/// elements apart. They are read before the next call with the same slot, 0 or 1.
template <std::size_t Parts, std::size_t Vectors, class Values>
HWY_INLINE void multiply_value_columns(std::size_t rows, const ValueProduct<float>& product,
                                       std::size_t tile_step, Values values_of, float* sums) {
  // Each step is prepared before the last one is multiplied: tiles are loaded slowly from lines
  // that have just been stored.
  WeightTiles<Parts> weights[2];
  const float* values[2];
  const auto prepare = [&](std::size_t key) ATTN_INLINE {
    const std::size_t slot = key / kStepKeys % 2;
    weights[slot].split(rows, product.weights + key, product.weights_stride,
                        product.from > key ? product.from - key : 0, product.to - key);
    values[slot] = values_of(key, slot);
  };
  each_constant<Vectors>([](auto sum) ATTN_INLINE { clear_tile<sum>(); });
  const std::size_t first = product.from - product.from % kStepKeys;
  prepare(first);
  for (std::size_t key = first, next; key < product.to; key = next) {
    next = key + kStepKeys;
    if (next < product.to) prepare(next);
    const std::size_t slot = key / kStepKeys % 2;
    each_constant<Parts>([&](auto part) ATTN_INLINE {
      load_tile<kFirstWeights + int{part}>(weights[slot].of[part], kStepPairs);
    });
    each_constant<Vectors>([&](auto sum) ATTN_INLINE {
      load_tile<kValues>(values[slot] + sum * tile_step, kLanes<float>);
      each_constant<Parts>([&](auto part) ATTN_INLINE {
        multiply_tiles<sum, kFirstWeights + int{part}, kValues>();
      });
    });
  }
  each_constant<Vectors>([&](auto sum) ATTN_INLINE {
    store_tile<sum>(sums + sum * kLanes<float>, Vectors * kLanes<float>);
  });
}

/// Adds weights * values to rows of `to`, at most kTileHeight, for all Dv columns. values_of(key,
/// slot, first, vectors) returns tiles as in multiply_value_columns(), from column 16 first on.
template <std::size_t Parts, class Values>
HWY_INLINE void multiply_values_in_tiles(std::size_t rows, const ValueProduct<float>& product,
                                         std::size_t tile_step, std::size_t Dv,
                                         const Sums<float>& to, Values values_of) {
  const std::size_t vectors = round_up(Dv, kLanes<float>) / kLanes<float>;
  HWY_ALIGN float sums[kTileHeight * kTilePanel];
  const TileUse use(kTileHeight, kLanes<float>, kStepPairs);
  for (std::size_t first = 0, next; first < vectors; first = next) {
    next = HWY_MIN(vectors, first + kTileSums);
    with_constant<kTileSums>(next - first, [&](auto v) {
      constexpr std::size_t kVectors = decltype(v)::value;
      multiply_value_columns<Parts, kVectors>(
          rows, product, tile_step,
          [&](std::size_t key, std::size_t slot)
              ATTN_INLINE { return values_of(key, slot, first, kVectors); },
          sums);
      const Tag<float> d;
      for (std::size_t row = 0; row < rows; ++row) {
        Vec<float> of_row[1][kVectors];
        unrolled<kVectors>([&](std::size_t j) ATTN_INLINE {
          of_row[0][j] = hn::Load(d, sums + (row * kVectors + j) * kLanes<float>);
        });
        add_tile<float>(of_row, row, first, to);
      }
    });
  }
}

/// The same for a packed key block of `count` keys, which starts at product.values. `rounds`:
/// weights are rounded.
inline HWY_NOINLINE void multiply_packed_tiles(bool rounds, std::size_t rows,
                                               const ValueProduct<float>& product,
                                               std::size_t count, std::size_t Dv,
                                               const Sums<float>& to) {
  const std::size_t tile_step = key_steps(count) * kTileElements;
  const auto values_of = [&](std::size_t key, std::size_t, std::size_t first,
                             std::size_t) ATTN_INLINE {
    return product.values + first * tile_step + key / kStepKeys * kTileElements;
  };
  if (rounds)
    multiply_values_in_tiles<1>(rows, product, tile_step, Dv, to, values_of);
  else
    multiply_values_in_tiles<kExactParts>(rows, product, tile_step, Dv, to, values_of);
}

/// The same for values [block, block + count) that are not packed. NaN and infinity are kept.
inline HWY_NOINLINE void multiply_stored_values(bool rounds, std::size_t rows,
                                                const ValueProduct<float>& product, const Matrix& v,
                                                std::size_t block, std::size_t count,
                                                std::size_t Dv, const Sums<float>& to,
                                                float* widened) {
  HWY_ALIGN float steps[2][kTileSums * kTileElements];
  const ValuePairs values(v, Dv, widened);
  const auto values_of = [&](std::size_t key, std::size_t slot, std::size_t first,
                             std::size_t vectors) ATTN_INLINE {
    values.store<false>(block + key, HWY_MIN(kStepKeys, count - key), kStepKeys,
                        first * kLanes<float>, vectors, steps[slot],
                        {.vector = kTileElements, .pair = kLanes<float>},
                        block + key + kStepsAhead * kStepKeys, block + count);
    return static_cast<const float*>(steps[slot]);
  };
  if (rounds)
    multiply_values_in_tiles<1>(rows, product, kTileElements, Dv, to, values_of);
  else
    multiply_values_in_tiles<kExactParts>(rows, product, kTileElements, Dv, to, values_of);
}

}  // namespace attn::kernel::HWY_NAMESPACE
#endif
