// Products of weights and values that few rows of weights use, which are read where they are
// stored, key by key. The sums equal those of packed values bit for bit.
#pragma once

#include <cstddef>
#include <iterator>

#include "attn/kernel/amx_values-inl.h"
#include "attn/kernel/elements-inl.h"
#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/tile-inl.h"
#include "attn/kernel/unpacked_keys-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Rows of values in memory, `step` bytes apart.
template <class Element>
struct StoredValues {
  const ElementOf<Element>* first;
  std::size_t step;

  HWY_INLINE const ElementOf<Element>* at(std::size_t key, std::size_t column) const {
    return reinterpret_cast<const ElementOf<Element>*>(reinterpret_cast<const std::byte*>(first) +
                                                       key * step) +
           column;
  }
};

/// How the weights of kSumDepth keys are added: Chains sums of every Chains-th key, for each of the
/// Parts of a weight. That is the order of a tile, or with one chain and one part, that of
/// multiply_tile().
template <std::size_t Chains, std::size_t Parts>
struct SumOrder {
  static constexpr std::size_t kChains = Chains, kParts = Parts;
};

/// The totals of load_split_factors() in the order of the columns.
template <class T>
HWY_INLINE void merge_columns(std::size_t rows, std::size_t Dv, T* total, std::size_t step) {
  const Tag<T> d;
  for (std::size_t r = 0; r < rows; ++r, total += step)
    for (std::size_t j = 0; j + 2 * kLanes<T> <= Dv; j += 2 * kLanes<T>) {
      const Vec<T> even = hn::Load(d, total + j), odd = hn::Load(d, total + j + kLanes<T>);
      hn::StoreInterleaved2(even, odd, d, total + j);
    }
}

/// The weights of keys in rows `step` apart, each (parts, kSumDepth), and the totals of their
/// products.
template <class T>
struct WeightRows {
  const T* weights;
  std::size_t step;
  T* total;
  std::size_t total_step;
};

/// Adds the products of `Rows` rows of weights of keys [from, to) and `Vectors` vectors of values
/// to the totals, or replaces these if `begins`. Values are prefetched `ahead` bytes before they
/// are used.
template <class T, class Element, class Order, std::size_t Rows, std::size_t Vectors>
HWY_INLINE void add_keys(std::size_t from, std::size_t to, const WeightRows<T>& rows,
                         const StoredValues<Element>& values, std::size_t column, std::size_t ahead,
                         bool begins) {
  const Tag<T> d;
  constexpr std::size_t kChains = Order::kChains, kParts = Order::kParts;
  Vec<T> sums[kChains][kParts][Rows][Vectors];
  for (auto& chain : sums)
    for (auto& part : chain)
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r)
        unrolled<Vectors>([&](std::size_t j) ATTN_INLINE { part[r][j] = hn::Zero(d); });
  const auto add = [&](std::size_t key, auto chain) ATTN_INLINE {
    const ElementOf<Element>* const row = values.at(key, column);
    prefetch_elements(reinterpret_cast<const std::byte*>(row) + ahead,
                      Vectors * kLanes<T> * sizeof(*row));
    Vec<T> of_key[Vectors];
    if constexpr (kIsSplit<Element> && Vectors > 1)
      unrolled<Vectors / 2>([&](std::size_t j) ATTN_INLINE {
        load_split_factors<T, Element>(row + 2 * j * kLanes<T>, of_key[2 * j], of_key[2 * j + 1]);
      });
    else
      unrolled<Vectors>([&](std::size_t j) ATTN_INLINE {
        of_key[j] = load_factors<T, Element>(row + j * kLanes<T>);
      });
#pragma GCC unroll 4
    for (std::size_t part = 0; part < kParts; ++part)
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r) {
        const Vec<T> weight = hn::Set(d, rows.weights[r * rows.step + part * kSumDepth<T> + key]);
        unrolled<Vectors>([&](std::size_t j) ATTN_INLINE {
          sums[chain][part][r][j] = hn::MulAdd(weight, of_key[j], sums[chain][part][r][j]);
        });
      }
  };
  std::size_t key = from;
  if (kChains == 2 && key % 2 != 0) add(key++, Constant<kChains - 1>());
#pragma GCC unroll 1
  for (; key + kChains <= to; key += kChains) {
    add(key, Constant<0>());
    if constexpr (kChains == 2) add(key + 1, Constant<1>());
  }
  if (kChains == 2 && key < to) add(key, Constant<0>());
#pragma GCC unroll 4
  for (std::size_t r = 0; r < Rows; ++r)
    unrolled<Vectors>([&](std::size_t j) ATTN_INLINE {
      T* const at = rows.total + r * rows.total_step + column + j * kLanes<T>;
      Vec<T> sum = begins ? hn::Zero(d) : hn::Load(d, at);
      if constexpr (kChains == 2)
#pragma GCC unroll 4
        for (std::size_t part = 0; part < kParts; ++part)
          sum = hn::Add(sum, hn::Add(sums[0][part][r][j], sums[1][part][r][j]));
      else
        sum = begins ? sums[0][0][r][j] : hn::Add(sum, sums[0][0][r][j]);
      hn::Store(sum, d, at);
    });
}

/// The largest power of two, at most 8, of vectors whose sums fit into the registers.
template <class Order>
constexpr std::size_t vectors_at_once(std::size_t rows) {
  constexpr std::size_t kSums = kTileVectors == 4 ? 24 : 8;
  std::size_t vectors = 8;
  while (vectors > 1 && vectors * rows * Order::kChains * Order::kParts > kSums) vectors /= 2;
  return vectors;
}

/// add_keys() for `count` rows, at most MostRows at once, and all Dv columns.
template <class T, class Element, class Order, std::size_t MostRows>
HWY_NOINLINE void add_keys_to_rows(std::size_t count, std::size_t from, std::size_t to,
                                   const WeightRows<T>& rows, const StoredValues<Element>& values,
                                   std::size_t Dv, bool begins) {
  in_powers_of_two<MostRows>(count, [&](auto r, std::size_t first) ATTN_INLINE {
    constexpr std::size_t kRows = decltype(r)::value;
    const WeightRows<T> some{rows.weights + first * rows.step, rows.step,
                             rows.total + first * rows.total_step, rows.total_step};
    static_assert(vectors_at_once<Order>(kRows) > 1);  // as merge_columns() expects
    in_powers_of_two<vectors_at_once<Order>(kRows)>(
        Dv / kLanes<T>, [&](auto v, std::size_t at) ATTN_INLINE {
          add_keys<T, Element, Order, kRows, decltype(v)::value>(
              from, to, some, values, at * kLanes<T>, first == 0 ? kBytesAhead : 0, begins);
        });
  });
}

/// The order of the sums of numbers.
using InTurn = SumOrder<1, 1>;
/// The order of tiles, with rounded weights (one part) or with exact ones.
template <std::size_t Parts>
using AsInTiles = SumOrder<2, Parts>;

#if ATTN_HAS_PAIRS
/// The parts (Parts, kStepKeys) of the weights of keys [from, to) as numbers, as WeightTiles has
/// them.
template <std::size_t Parts>
HWY_INLINE void split_weights(const float* weights, std::size_t from, std::size_t to,
                              float* parts) {
  const Tag<float> d;
  const __m512i upper_bits = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  for (std::size_t i = 0; i < kStepKeys; i += kLanes<float>) {
    const std::uint64_t used = (std::uint64_t{1} << to) - (std::uint64_t{1} << from);
    Vec<float> rest{_mm512_maskz_loadu_ps(static_cast<__mmask16>(used >> i), weights + i)};
    unrolled<Parts>([&](std::size_t part) ATTN_INLINE {
      const __m512i bits = _mm512_castps_si512(rest.raw);
      const Vec<float> upper{_mm512_castsi512_ps(_mm512_and_si512(bits, upper_bits))};
      hn::StoreU(Parts == 1 ? rounded_to_bfloat16(d, rest) : upper, d,
                 parts + part * kStepKeys + i);
      rest = hn::Sub(rest, upper);
    });
  }
}
#endif

/// add_keys_to_rows() for all keys of a product.
template <class T, class Element, class Order>
HWY_NOINLINE void add_stored_values(std::size_t rows, const ValueProduct<T>& product,
                                    const StoredValues<Element>& values, std::size_t Dv, T* total,
                                    std::size_t total_step) {
#if ATTN_HAS_PAIRS
  HWY_ALIGN T parts[kMostRowsAsInTiles][Order::kParts * kSumDepth<T>];
#endif
  for (std::size_t key = product.from, next; key < product.to; key = next) {
    const std::size_t first = key - key % kSumDepth<T>;
    next = HWY_MIN(product.to, first + kSumDepth<T>);
    WeightRows<T> weights{product.weights + first, product.weights_stride, total, total_step};
    constexpr std::size_t kMostRows = Order::kChains == 2 ? 2 : 4;
#if ATTN_HAS_PAIRS
    if constexpr (Order::kChains == 2) {
      for (std::size_t r = 0; r < rows; ++r)
        split_weights<Order::kParts>(weights.weights + r * weights.step, key - first, next - first,
                                     parts[r]);
      weights.weights = parts[0], weights.step = std::size(parts[0]);
    }
#endif
    add_keys_to_rows<T, Element, Order, kMostRows>(rows, key - first, next - first, weights,
                                                   {values.at(first, 0), values.step}, Dv,
                                                   key == product.from);
  }
  if constexpr (kIsSplit<Element>) merge_columns(rows, Dv, total, total_step);
}

}  // namespace attn::kernel::HWY_NAMESPACE
