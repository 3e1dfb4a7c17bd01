// Values in bfloat16 as pairs: two neighbouring keys in the bits of one float, the first in the
// lower. An odd last key is paired with zeros.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "attn/kernel/pack-inl.h"
#include "attn/kernel/terms-inl.h"

#if ATTN_HAS_PAIRS
namespace attn::kernel::HWY_NAMESPACE {

/// Where pairs are stored: elements from one vector of 16 columns to the next, and from one pair of
/// keys to the next.
struct PairSteps {
  std::size_t vector, pair;
};

/// The values of a head, which are rounded to bfloat16.
class ValuePairs {
 public:
  /// `buffer`: memory for two rows as float.
  ValuePairs(const Matrix& v, std::size_t Dv, float* buffer)
      : rows_(v, Dv),
        Dv_(Dv),
        is_stored_(rows_.is_plain(DType::bf16)),
        bytes_(is_stored_         ? size_of(DType::bf16)
               : rows_.in_place() ? sizeof(float)
                                  : 0),
        buffer_(buffer) {}

  /// Stores keys [first, first + count) and then zeros, in total `padded` keys, an even number, and
  /// `vectors` times 16 columns from column `from` on. Meanwhile prefetches these columns of keys
  /// from `next` on, before key `end`. With kChecked, NaN and infinite values are stored as 0, and
  /// the result is whether there are any.
  template <bool kChecked>
  bool store(std::size_t first, std::size_t count, std::size_t padded, std::size_t from,
             std::size_t vectors, float* to, PairSteps steps, std::size_t next = 0,
             std::size_t end = 0) const {
    __mmask32 non_finite = 0;
    for (std::size_t key = 0; key < padded; key += 2, to += steps.pair) {
      for (std::size_t i = next + key; i < HWY_MIN(next + key + 2, end); ++i)
        prefetch(i, from, vectors);
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
        float* const at = to + vector * steps.vector;
        _mm512_storeu_si512(at, interleaved(low, high, kFirstColumns));
        if (vector + 1 < vectors)
          _mm512_storeu_si512(at + steps.vector, interleaved(low, high, kLastColumns));
      }
    }
    return non_finite != 0;
  }

 private:
  /// Prefetches the columns that store() reads in place.
  HWY_INLINE void prefetch(std::size_t i, std::size_t from, std::size_t vectors) const {
    if (bytes_ == 0) return;
    const std::size_t begin = from * bytes_, end = begin + vectors * kLanes<float> * bytes_;
    if (const std::byte* const row = rows_.start(i))
      for (std::size_t byte = begin; byte < end; byte += 64) __builtin_prefetch(row + byte);
  }

  /// A row in memory: bfloat16 numbers, or floats in place or in the buffer. nullptr: zeros.
  struct Row {
    const std::byte* stored = nullptr;
    const float* numbers = nullptr;

    HWY_INLINE Row(const ValuePairs& values, std::size_t i, bool exists, std::size_t buffer) {
      if (!exists) return;
      if (values.is_stored_)
        stored = values.rows_.start(i);
      else
        numbers = values.rows_.at(i, values.buffer_ + buffer * values.Dv_);
    }

    HWY_INLINE __m512i columns(std::size_t column, __mmask32 present) const {
      if (stored) return _mm512_maskz_loadu_epi16(present, stored + 2 * column);
      if (numbers == nullptr) return _mm512_setzero_si512();
      const float* const from = numbers + column;
      const Vec<float> lower{_mm512_maskz_loadu_ps(static_cast<__mmask16>(present), from)};
      const Vec<float> upper{
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(present >> 16), from + kLanes<float>)};
      return _mm512_castps_si512(rounded_pairs(lower, upper).raw);
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
  bool is_stored_;     ///< in bfloat16
  std::size_t bytes_;  ///< of an element that is read in place, otherwise 0
  float* buffer_;
};

/// Packs values [first, first + count) as pairs from pair `at` on into panels of `pairs` pairs (see
/// kernels.h). `widened`: memory for two rows.
inline ValueKind pack_value_pairs(const Matrix& v, std::size_t first, std::size_t count,
                                  std::size_t Dv, float* widened, float* packed, std::size_t pairs,
                                  std::size_t at) {
  const ValuePairs values(v, Dv, widened);
  bool non_finite = false;
  for (std::size_t column = 0; column < Dv; column += kPanel<float>) {
    const std::size_t width = round_up(HWY_MIN(kPanel<float>, Dv - column), kLanes<float>);
    non_finite |= values.store<true>(first, count, round_up(count, 2), column,
                                     width / kLanes<float>, packed + column * pairs + at * width,
                                     {.vector = kLanes<float>, .pair = width});
  }
  return non_finite ? ValueKind::non_finite : ValueKind::packed;
}

/// Copies values [first, first + count) of `all`, in whole vectors, as rows of pairs, and
/// prefetches as many that follow. `widened`: memory for two rows.
inline void copy_value_pairs(const Matrix& v, std::size_t first, std::size_t count, std::size_t all,
                             std::size_t Dv, float* widened, float* to) {
  const ValuePairs values(v, Dv, widened);
  values.store<false>(first, count, round_up(count, 2), 0, Dv / kLanes<float>, to,
                      {.vector = kLanes<float>, .pair = Dv}, first + count, all);
}

}  // namespace attn::kernel::HWY_NAMESPACE
#endif
