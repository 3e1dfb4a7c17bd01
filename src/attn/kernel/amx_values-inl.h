// Products of weights and values in bfloat16 in the tiles of AMX. A weight is the sum of three
// bfloat16 numbers, which are multiplied separately, so weights are not rounded (Henry, Tang,
// Heinecke: Leveraging the bfloat16 artificial intelligence datatype for higher-precision
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

#if ATTN_HAS_PAIRS
namespace attn::kernel::HWY_NAMESPACE {

inline constexpr std::size_t kWeightParts = 3;  // of 8 bits each
inline constexpr std::size_t kTileElements = kTileHeight * kStepPairs;
static_assert(kStepKeys == 2 * kStepPairs && kValueTileRows <= kTileHeight);

/// The lower (from = 0) or upper (from = 1) 16 bits of the lanes of a, then of b.
HWY_INLINE __m512i halves_of(__m512i a, __m512i b, std::int16_t from) {
  static constexpr auto kEven = [] {
    std::array<std::int16_t, 32> even{};
    for (std::size_t i = 0; i < even.size(); ++i) even[i] = static_cast<std::int16_t>(2 * i);
    return even;
  }();
  const __m512i even = _mm512_loadu_si512(kEven.data());
  return _mm512_permutex2var_epi16(a, _mm512_or_si512(even, _mm512_set1_epi16(from)), b);
}

/// Values in bfloat16 as steps of pairs.
class ValueSteps {
 public:
  /// `buffer`: memory for two rows as float.
  ValueSteps(const Matrix& v, std::size_t Dv, float* buffer)
      : rows_(v, Dv), Dv_(Dv), is_plain_(rows_.is_plain(DType::bf16)), buffer_(buffer) {}

  /// Stores keys [first, first + count), at most kStepKeys, and `vectors` times 16 columns from
  /// column `from` on as tiles, `tile_step` elements apart. With kChecked, NaN and infinite
  /// values are stored as 0, and the result is whether there are any.
  template <bool kChecked>
  bool store(std::size_t first, std::size_t count, std::size_t from, std::size_t vectors, float* to,
             std::size_t tile_step) const {
    __mmask32 non_finite = 0;
    for (std::size_t key = 0; key < kStepKeys; key += 2, to += kLanes<float>) {
      const Row a(*this, first + key, key < count, 0),
          b(*this, first + key + 1, key + 1 < count, 1);
      for (std::size_t vector = 0; vector < vectors; vector += 2) {
        const std::size_t column = from + vector * kLanes<float>;
        const std::size_t left = Dv_ > column ? HWY_MIN(Dv_ - column, 2 * kLanes<float>) : 0;
        const auto present = static_cast<__mmask32>((std::uint64_t{1} << left) - 1);
        __m512i low = a.columns(column, present), high = b.columns(column, present);
        if (kChecked) {
          non_finite |= replace_non_finite(low);
          non_finite |= replace_non_finite(high);
        }
        float* const at = to + vector * tile_step;
        _mm512_store_si512(at, interleaved(low, high, kFirstColumns));
        if (vector + 1 < vectors)
          _mm512_store_si512(at + tile_step, interleaved(low, high, kLastColumns));
      }
    }
    return non_finite != 0;
  }

  /// Prefetches the stored columns that store() reads.
  HWY_INLINE void prefetch(std::size_t first, std::size_t count, std::size_t from,
                           std::size_t vectors) const {
    if (!is_plain_) return;
    for (std::size_t i = 0; i < count; ++i)
      if (const std::byte* const row = rows_.start(first + i))
        for (std::size_t vector = 0; vector < vectors; vector += 2)
          __builtin_prefetch(row + 2 * (from + vector * kLanes<float>));
  }

 private:
  /// A row in memory: bfloat16 numbers, or floats in the buffer. nullptr: zeros.
  struct Row {
    const std::byte* stored = nullptr;
    const float* numbers = nullptr;

    HWY_INLINE Row(const ValueSteps& values, std::size_t i, bool exists, std::size_t buffer) {
      if (!exists) return;
      if (values.is_plain_)
        stored = values.rows_.start(i);
      else
        numbers = values.rows_.at(i, values.buffer_ + buffer * values.Dv_);
    }

    HWY_INLINE __m512i columns(std::size_t column, __mmask32 present) const {
      if (stored) return _mm512_maskz_loadu_epi16(present, stored + 2 * column);
      if (numbers == nullptr) return _mm512_setzero_si512();
      const float* const from = numbers + column;
      return halves_of(_mm512_maskz_loadu_epi32(static_cast<__mmask16>(present), from),
                       _mm512_maskz_loadu_epi32(static_cast<__mmask16>(present >> 16), from + 16),
                       1);
    }
  };

  static HWY_INLINE __mmask32 replace_non_finite(__m512i& x) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    const __mmask32 found = _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
    x = _mm512_maskz_mov_epi16(static_cast<__mmask32>(~found), x);
    return found;
  }

  static constexpr std::int16_t kFirstColumns = 0, kLastColumns = 16;
  /// Pairs of 16 columns of two rows, from column `from` on.
  static HWY_INLINE __m512i interleaved(__m512i a, __m512i b, std::int16_t from) {
    static constexpr auto kInTurn = [] {
      std::array<std::int16_t, 32> in_turn{};
      for (std::size_t i = 0; i < in_turn.size(); ++i)
        in_turn[i] = static_cast<std::int16_t>(i / 2 + i % 2 * 32);
      return in_turn;
    }();
    const __m512i in_turn = _mm512_loadu_si512(kInTurn.data());
    return _mm512_permutex2var_epi16(a, _mm512_add_epi16(in_turn, _mm512_set1_epi16(from)), b);
  }

  Rows<float> rows_;
  std::size_t Dv_;
  bool is_plain_;
  float* buffer_;
};

/// Packs values [first, first + count), at most kKeyBlock, into their key block. `widened`: memory
/// for two rows.
inline ValueKind pack_values_in_tiles(const Matrix& v, std::size_t first, std::size_t count,
                                      std::size_t Dv, float* widened, float* packed) {
  const ValueSteps values(v, Dv, widened);
  const std::size_t tile_step = key_steps(count) * kTileElements;
  bool non_finite = false;
  for (std::size_t key = 0; key < count; key += kStepKeys, packed += kTileElements)
    non_finite |=
        values.store<true>(first + key, HWY_MIN(kStepKeys, count - key), 0,
                           round_up(Dv, kLanes<float>) / kLanes<float>, packed, tile_step);
  return non_finite ? ValueKind::non_finite : ValueKind::packed;
}

/// The parts of the weights of a step, for up to kTileHeight rows.
struct WeightTiles {
  HWY_ALIGN float of[kWeightParts][kTileElements] = {};

  /// Keys [from, to) of the step; the weights of others count as 0.
  HWY_INLINE void split(std::size_t rows, const float* weights, std::size_t stride,
                        std::size_t from, std::size_t to) {
    const auto used = static_cast<__mmask32>((std::uint64_t{1} << HWY_MIN(to, kStepKeys)) -
                                             (std::uint64_t{1} << from));
    const __m512i upper_bits = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (std::size_t r = 0; r < rows; ++r, weights += stride) {
      __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(used), weights);
      __m512 b = _mm512_maskz_loadu_ps(static_cast<__mmask16>(used >> 16), weights + kLanes<float>);
      unrolled<kWeightParts>([&](std::size_t part) ATTN_INLINE {
        const __m512i a_bits = _mm512_castps_si512(a), b_bits = _mm512_castps_si512(b);
        _mm512_store_si512(of[part] + r * kStepPairs, halves_of(a_bits, b_bits, 1));
        a = _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_and_si512(a_bits, upper_bits)));
        b = _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_and_si512(b_bits, upper_bits)));
      });
    }
  }
};

// The registers: kTileSums sums, the parts of the weights, a tile of values.
inline constexpr int kFirstWeights = kTileSums, kValues = kTileSums + int{kWeightParts};

/// Computes the sums of up to kTileHeight rows and `Vectors` times 16 columns. values_of(key, slot)
/// returns the first tile of the step that starts at `key`; the others are `tile_step`
/// elements apart. They are read before the next call with the same slot, 0 or 1.
template <std::size_t Vectors, class Values>
HWY_INLINE void multiply_value_columns(std::size_t rows, const ValueProduct<float>& product,
                                       std::size_t tile_step, Values values_of, float* sums) {
  // Each step is prepared before the last one is multiplied: tiles are loaded slowly from lines
  // that have just been stored.
  WeightTiles weights[2];
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
    each_constant<kWeightParts>([&](auto part) ATTN_INLINE {
      load_tile<kFirstWeights + int{part}>(weights[slot].of[part], kStepPairs);
    });
    each_constant<Vectors>([&](auto sum) ATTN_INLINE {
      load_tile<kValues>(values[slot] + sum * tile_step, kLanes<float>);
      each_constant<kWeightParts>([&](auto part) ATTN_INLINE {
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
template <class Values>
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
      multiply_value_columns<kVectors>(
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

/// The same for a packed key block of `count` keys, which starts at product.values.
inline HWY_NOINLINE void multiply_packed_tiles(std::size_t rows, const ValueProduct<float>& product,
                                               std::size_t count, std::size_t Dv,
                                               const Sums<float>& to) {
  const std::size_t tile_step = key_steps(count) * kTileElements;
  multiply_values_in_tiles(
      rows, product, tile_step, Dv, to,
      [&](std::size_t key, std::size_t, std::size_t first, std::size_t) ATTN_INLINE {
        return product.values + first * tile_step + key / kStepKeys * kTileElements;
      });
}

/// The same for values [block, block + count) that are not packed. NaN and infinity are kept.
inline HWY_NOINLINE void multiply_stored_values(std::size_t rows,
                                                const ValueProduct<float>& product, const Matrix& v,
                                                std::size_t block, std::size_t count,
                                                std::size_t Dv, const Sums<float>& to,
                                                float* widened) {
  HWY_ALIGN float steps[2][kTileSums * kTileElements];
  const ValueSteps values(v, Dv, widened);
  multiply_values_in_tiles(
      rows, product, kTileElements, Dv, to,
      [&](std::size_t key, std::size_t slot, std::size_t first, std::size_t vectors) ATTN_INLINE {
        const std::size_t next = key + kStepKeys;
        if (next < count)
          values.prefetch(block + next, HWY_MIN(kStepKeys, count - next), first * kLanes<float>,
                          vectors);
        values.store<false>(block + key, HWY_MIN(kStepKeys, count - key), first * kLanes<float>,
                            vectors, steps[slot], kTileElements);
        return static_cast<const float*>(steps[slot]);
      });
}

}  // namespace attn::kernel::HWY_NAMESPACE
#endif
