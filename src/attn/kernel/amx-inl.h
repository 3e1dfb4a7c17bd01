// Products of pairs of bfloat16 factors in the tile registers of AMX (Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 1, chapter 18; TDPBF16PS in volume 2).
//
// A step multiplies 16 pairs, 32 columns: the products of the even columns are added one by one,
// likewise those of the odd ones; then their sum is added to that of the steps before. Sums are
// therefore the same for any shape of a tile, and for queries times keys and keys times queries.
// Subnormal factors and sums count as 0.
//
// The instructions are written as assembly, because the file is compiled for processors that lack
// them; only Isa::amx_bf16 executes them. Compilers do not know that the registers change, and do
// not use them otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "attn/kernel/simd-inl.h"
#include "attn/kernel/terms-inl.h"

#if ATTN_HAS_PAIRS
namespace attn::kernel::HWY_NAMESPACE {

inline constexpr std::size_t kTileHeight = 16;  ///< most rows of a tile
inline constexpr std::size_t kStepPairs = 16;   ///< most pairs of a row

// The registers: four sums, and one operand each for whole steps and for the last step, which may
// have fewer pairs.
inline constexpr int kTileSums = 4, kLeft = 4, kRight = 5, kLastLeft = 6, kLastRight = 7;

/// The operand of LDTILECFG.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// The shapes of the registers while sums of `left` x `right` elements, at most 16 each, are
/// computed from `depth` pairs. Other shapes follow only after the destructor.
class TileUse {
 public:
  TileUse(std::size_t left, std::size_t right, std::size_t depth) {
    TileShapes shapes;
    const auto set = [&](int tile, std::size_t rows, std::size_t floats) {
      shapes.rows[tile] = static_cast<std::uint8_t>(rows);
      shapes.row_bytes[tile] = static_cast<std::uint16_t>(floats * sizeof(float));
    };
    const std::size_t rest = depth % kStepPairs, last = rest == 0 ? kStepPairs : rest;
    for (int tile = 0; tile < kTileSums; ++tile) set(tile, left, right);
    set(kLeft, left, kStepPairs);
    set(kRight, kStepPairs, right);
    set(kLastLeft, left, last);
    set(kLastRight, last, right);
    asm volatile("ldtilecfg %0" : : "m"(shapes));
  }
  ~TileUse() { asm volatile("tilerelease"); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;
};

/// Rows in memory are `stride` floats apart.
template <int kTile>
HWY_INLINE void load_tile(const float* from, std::size_t stride) {
  asm volatile("tileloadd (%0,%1,4), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void store_tile(float* to, std::size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,4)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

/// kSums += kA kB.
template <int kSums, int kA, int kB>
HWY_INLINE void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}

/// Calls f(Constant<0>()) to f(Constant<Count - 1>()).
template <std::size_t Count, class F>
HWY_INLINE void each_constant(F f) {
  [&]<std::size_t... kNumbers>(std::index_sequence<kNumbers...>) ATTN_INLINE {
    (f(Constant<kNumbers>()), ...);
  }
  (std::make_index_sequence<Count>());
}

/// A panel of packed keys: as many as the sums have columns.
inline constexpr std::size_t kTilePanel = kTileSums * kLanes<float>;

/// Adds a step of queries and a panel of keys to the sums.
template <int kQueries, int kKeys>
HWY_INLINE void add_step(const float* query, std::size_t depth, const float* keys) {
  load_tile<kQueries>(query, depth);
  each_constant<kTileSums>([&](auto sum) ATTN_INLINE {
    load_tile<kKeys>(keys + sum * kLanes<float>, kTilePanel);
    multiply_tiles<sum, kQueries, kKeys>();
  });
}

/// Stores the sums of queries, at most kTileHeight, and a panel of keys. The shapes are set.
HWY_INLINE void multiply_panel(const float* query, std::size_t depth, const float* keys, float* out,
                               std::size_t out_stride) {
  each_constant<kTileSums>([](auto sum) ATTN_INLINE { clear_tile<sum>(); });
  const std::size_t whole = depth - depth % kStepPairs;
  for (std::size_t k = 0; k < whole; k += kStepPairs)
    add_step<kLeft, kRight>(query + k, depth, keys + k * kTilePanel);
  if (whole < depth)
    add_step<kLastLeft, kLastRight>(query + whole, depth, keys + whole * kTilePanel);
  each_constant<kTileSums>(
      [&](auto sum) ATTN_INLINE { store_tile<sum>(out + sum * kLanes<float>, out_stride); });
}

/// Adds a step of two tiles of keys, `keys_step` floats apart, and queries (pairs, count) to the
/// first two sums.
template <int kKeys, int kQueries>
HWY_INLINE void add_step_of_keys(const float* keys, std::size_t keys_step, const float* queries,
                                 std::size_t count) {
  load_tile<kQueries>(queries, count);
  load_tile<kKeys>(keys, keys_step);
  multiply_tiles<0, kKeys, kQueries>();
  load_tile<kKeys>(keys + kTileHeight * keys_step, keys_step);
  multiply_tiles<1, kKeys, kQueries>();
}

}  // namespace attn::kernel::HWY_NAMESPACE
#endif
