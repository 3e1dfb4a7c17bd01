// What masks, biases and distances make of a tile of scores before it leaves the registers: the
// same to the last bit as finish_row() makes of it in a second pass (of numbers: where scores are
// NaN and infinite, which of them the greatest is found to be may differ).
#pragma once

#include <algorithm>

#include "attn/kernel/kernels.h"
#include "attn/kernel/panel_scores-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Whether a row's terms and masks are few and stand side by side.
template <class T>
bool is_plain_to_add(const Problem<T>& p) {
  const auto side_by_side = [](const auto& each) { return !each.data || each.strides.column == 1; };
  return p.softcap == 0 && std::all_of(p.masks.begin(), p.masks.end(), side_by_side) &&
         std::all_of(p.biases.begin(), p.biases.end(), side_by_side);
}

/// Panels of keys, all of which the places of a tile's rows let be seen.
template <class T>
struct WholePanels {
  const Problem<T>& p;
  const Row<T>* row;   ///< of the tile
  std::int64_t first;  ///< key
  std::size_t panels;
  T unit;  ///< of the strip
};

/// A panel of one row's scores, on their way to the softmax.
template <class T>
struct PanelVectors {
  Vec<T> scores[kTileVectors];

  template <class F>
  HWY_INLINE void each(F f) {
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kTileVectors; ++j) scores[j] = f(scores[j], j * kLanes<T>);
  }
  HWY_INLINE void add(const T* term) {
    if (!term) return;
    each([&](Vec<T> x, std::size_t at) { return hn::Add(x, hn::LoadU(Tag<T>(), term + at)); });
  }
  HWY_INLINE void hide_by(const T* bias) {
    if (!bias) return;
    each([&](Vec<T> x, std::size_t at) { return hidden_by_bias<T>(x, bias + at); });
  }
  HWY_INLINE void hide_by(const std::uint8_t* mask, bool hides) {
    if (!mask) return;
    if (hides)
      each([&](Vec<T> x, std::size_t at) { return hidden_by_mask<T>(x, mask + at, true); });
    else
      each([&](Vec<T> x, std::size_t at) { return hidden_by_mask<T>(x, mask + at, false); });
  }
};

/// finish_row() of one row and whole panels.
template <class T, bool kBiased>
void finish_whole_row(const WholePanels<T>& run, std::size_t r, T* strip, T* running_max) {
  const Tag<T> d;
  const Row<T>& row = run.row[r];
  const auto at = [](const auto* of_row, std::int64_t key) {
    return of_row ? of_row + key : of_row;
  };
  const bool* const hides[] = {&run.p.masks[0].hides, &run.p.masks[1].hides, &run.p.masks[2].hides};
  PanelVectors<T> most;
  for (Vec<T>& lanes : most.scores) lanes = hn::Load(d, running_max);
  for (std::size_t panel = 0; panel < run.panels; ++panel, strip += kPanel<T>) {
    const std::int64_t key = run.first + static_cast<std::int64_t>(panel * kPanel<T>);
    if constexpr (kBiased)
      prefetch_masks<1>(run.p, run.row + r + 1, 1, key);  // an empty one at last
    PanelVectors<T> here;
    here.each([&](Vec<T>, std::size_t lane) { return hn::Load(d, strip + lane); });
    here.add(at(row.distances, key));
    if constexpr (kBiased) {
      for (const T* bias : row.biases) here.add(at(bias, key));
      for (const T* bias : row.biases) here.hide_by(at(bias, key));
    }
    for (std::size_t m = 0; m < row.masks.size(); ++m)
      here.hide_by(at(row.masks[m], key), *hides[m]);
    if (kBiased || row.distances)
      here.each(
          [&](Vec<T> x, std::size_t) { return in_units<T, kBiased>(x, hn::Set(d, run.unit)); });
    here.each([&](Vec<T> x, std::size_t lane) {
      hn::Store(x, d, strip + lane);
      return x;
    });
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kTileVectors; ++j)
      most.scores[j] = hn::Max(most.scores[j], here.scores[j]);
  }
  for (std::size_t j = 1; j < kTileVectors; ++j)
    most.scores[0] = hn::Max(most.scores[0], most.scores[j]);
  hn::Store(most.scores[0], d, running_max);
}

}  // namespace attn::kernel::HWY_NAMESPACE
