// What masks, biases and distances make of a tile of scores before it leaves the registers: the
// same to the last bit as finish_row() makes of it in a second pass (of numbers: where scores are
// NaN and infinite, which of them the greatest is found to be may differ).
#pragma once

#include <algorithm>

#include "attn/kernel/kernels.h"
#include "attn/kernel/panel_scores-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Whether a row's terms and masks stand side by side, and no softcap is among them.
template <class T>
bool is_plain_to_add(const Problem<T>& p) {
  const auto side_by_side = [](const auto& each) { return !each.data || each.strides.column == 1; };
  return p.softcap == 0 && std::all_of(p.masks.begin(), p.masks.end(), side_by_side) &&
         std::all_of(p.biases.begin(), p.biases.end(), side_by_side);
}

/// Rows whose masks and biases are needed next, from `first` key on: they take long to come from
/// memory.
template <class T>
struct NextRows {
  const Row<T>* row;
  std::size_t count;
  std::int64_t first;
};

/// Panels of keys, all of which the places of a group's rows let be seen.
template <class T>
struct WholePanels {
  const Problem<T>& p;
  const Row<T>* row;   ///< of the group
  std::int64_t first;  ///< key
  std::size_t count;
  T scale, unit;  ///< of the sums, of the strip
  NextRows<T> next;
};

/// A panel of one row's scores, in registers, on their way to the softmax.
template <class T>
struct PanelVectors {
  Vec<T> (&scores)[kTileVectors];

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

/// finish_row() of row r and the panel at `key`, of which `sums` are the scores / scale.
template <class T, bool kBiased>
HWY_INLINE void finish_panel(const WholePanels<T>& panels, std::size_t r, std::int64_t key,
                             Vec<T> (&sums)[kTileVectors], T* strip, T* running_max) {
  const Tag<T> d;
  const Row<T>& row = panels.row[r];
  if (r < panels.next.count)
    prefetch_masks(panels.p, panels.next.row + r, 1, panels.next.first + key - panels.first);
  const auto at = [key](const auto* of_row) { return of_row ? of_row + key : of_row; };
  PanelVectors<T> here{sums};
  here.each([&](Vec<T> x, std::size_t) { return hn::Mul(x, hn::Set(d, panels.scale)); });
  here.add(at(row.distances));
  if constexpr (kBiased) {
    for (const T* bias : row.biases) here.add(at(bias));
    for (const T* bias : row.biases) here.hide_by(at(bias));
  }
  for (std::size_t m = 0; m < row.masks.size(); ++m)
    here.hide_by(at(row.masks[m]), panels.p.masks[m].hides);
  if (kBiased || row.distances)
    here.each(
        [&](Vec<T> x, std::size_t) { return in_units<T, kBiased>(x, hn::Set(d, panels.unit)); });
  Vec<T> most = hn::Load(d, running_max);
  here.each([&](Vec<T> x, std::size_t lane) {
    hn::Store(x, d, strip + lane);
    most = hn::Max(most, x);
    return x;
  });
  hn::Store(most, d, running_max);
}

/// Scores of some rows with all that is added and hidden; `query`, `out` and `running_max` as in
/// score_rows().
template <class T, bool kBiased>
HWY_NOINLINE void score_whole_tiles(const TileRows& rows, const WholePanels<T>& panels,
                                    std::size_t depth, const T* query, const T* keys, T* out,
                                    std::size_t out_stride, T* running_max) {
  with_constant<kTileRows>(rows.of_tile(), [=, &rows, &panels](auto r) {
    multiply_panels<T, decltype(r)::value, kTileVectors>(
        rows, panels.count, depth, query, keys, out, out_stride,
        [&](std::size_t row, std::size_t panel, auto& sums, T* at) {
          const std::int64_t key = panels.first + static_cast<std::int64_t>(panel * kPanel<T>);
          finish_panel<T, kBiased>(panels, row, key, sums, at, running_max + row * kLanes<T>);
        });
  });
}

}  // namespace attn::kernel::HWY_NAMESPACE
