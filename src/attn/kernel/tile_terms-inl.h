// What a bias, a mask and distances make of a tile of scores before these leave the registers: the
// same to the last bit, in the same order, as finish_row() makes of them in a second pass.
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/panel_scores-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Whether score_edited_tiles() knows all that is added and hidden: distances, one bias and one
/// mask, whose elements stand side by side.
template <class T>
bool has_simple_terms(const Problem<T>& p) {
  const auto simple = [](const auto& each) { return !each.data || each.strides.column == 1; };
  return p.softcap == 0 && simple(p.biases[0]) && !p.biases[1].data && simple(p.masks[0]) &&
         !p.masks[1].data && !p.masks[2].data;
}

/// What the keys are that a mask marks.
enum class Marked { none, seen, hidden };

/// Panels of keys, all of which the places of a group's rows let be seen.
template <class T>
struct WholePanels {
  const Row<T>* row;   ///< of the group
  std::int64_t first;  ///< key
  std::size_t count;
  T scale, unit;  ///< of the sums, of the strip
};

/// finish_row() of a row and the panel at `key`, of which `sums` are the scores / scale.
template <class T, bool kBiased, Marked kMarked>
HWY_INLINE void finish_panel(const Row<T>& row, std::int64_t key, Vec<T> scale,
                             const Adder<T>& adder, Vec<T> (&sums)[kTileVectors], T* strip,
                             T* running_max) {
  const Tag<T> d;
  const T* distances = row.distances ? row.distances + key : nullptr;
  const T* bias = kBiased ? row.biases[0] + key : nullptr;
  const std::uint8_t* mask = kMarked != Marked::none ? row.masks[0] + key : nullptr;
  // What the next panel needs comes from far: it may come while that is multiplied.
  if (kBiased) prefetch_elements(bias + kPanel<T>, kPanel<T>);
  if (kMarked != Marked::none) prefetch_elements(mask + kPanel<T>, kPanel<T>);
  Vec<T> most = hn::Load(d, running_max);
  unrolled<kTileVectors>([&](std::size_t j) {
    const std::size_t at = j * kLanes<T>;
    Vec<T> score = hn::Mul(sums[j], scale);
    if (distances) score = adder.distance(score, distances + at);
    if (kBiased) score = hidden_by_bias<T>(adder.bias(score, bias + at), bias + at);
    if (kMarked != Marked::none)
      score = hidden_by_mask<T>(score, mask + at, kMarked == Marked::hidden);
    hn::Store(score, d, strip + at);
    most = raised<T>(most, score);
  });
  hn::Store(most, d, running_max);
}

/// Scores of `rows` rows, whole tiles, with all that is added and hidden; `query`, `out` and
/// `running_max` as in score_rows().
template <class T, bool kBiased, Marked kMarked>
HWY_NOINLINE void score_edited_tiles(std::size_t rows, const WholePanels<T>& panels,
                                     std::size_t depth, const T* query, const T* keys, T* out,
                                     std::size_t out_stride, T* running_max) {
  const Vec<T> scale = hn::Set(Tag<T>(), panels.scale);
  const Adder<T> adder(panels.unit);
  multiply_panels<T, kTileRows, kTileVectors>(
      {0, rows}, panels.count, depth, query, keys, out, out_stride,
      [&](std::size_t row, std::size_t panel, auto& sums, T* at) {
        const std::int64_t key = panels.first + static_cast<std::int64_t>(panel * kPanel<T>);
        finish_panel<T, kBiased, kMarked>(panels.row[row], key, scale, adder, sums, at,
                                          running_max + row * kLanes<T>);
      });
}

}  // namespace attn::kernel::HWY_NAMESPACE
