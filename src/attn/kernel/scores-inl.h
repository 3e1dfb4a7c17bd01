// Scores of a tile of queries and a block of keys.
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/panel_scores-inl.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Whether anything but hiding comes between the scaled scores and the softmax.
template <class T>
HWY_INLINE bool has_terms(const Problem<T>& p) {
  return has_biases(p) || p.distances.data || p.softcap > 0;
}

/// Scores in the strip are in units of log(2) * temperature, as exp2() takes them. Where terms are
/// added it is finish() that makes them that; otherwise it is part of the scale.
template <class T>
HWY_INLINE T strip_unit(const Problem<T>& p) {
  return static_cast<T>(kLog2e / p.temperature);
}
template <class T>
HWY_INLINE T strip_scale(const Problem<T>& p) {
  return has_terms(p) ? p.scale : static_cast<T>(p.scale * (kLog2e / p.temperature));
}

/// strip = scale * raw for `rows` rows of a panel, and the running maximum as score_tile() has it.
template <class T>
void scale_raw(std::size_t rows, std::size_t vectors, const T* raw, T* strip, std::size_t stride,
               T scale, T* running_max) {
  const Tag<T> d;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < vectors; ++j) {
      const std::size_t at = i * stride + j * kLanes<T>;
      const Vec<T> score = hn::Mul(hn::Load(d, raw + at), hn::Set(d, scale));
      hn::Store(score, d, strip + at);
      if (running_max == nullptr) continue;
      T* most = running_max + i * kLanes<T>;
      hn::Store(hn::Max(hn::Load(d, most), score), d, most);
    }
}

HWY_INLINE Span intersection(Span a, Span b) {
  return {greater(a.first, b.first), lesser(a.last, b.last)};
}

HWY_INLINE Span key_block_span(std::size_t number) {
  const auto first = static_cast<std::int64_t>(number * kKeyBlock);
  return {first, first + static_cast<std::int64_t>(kKeyBlock)};
}

/// A few rows of a block, as many as the micro-kernel takes at once.
template <class T>
struct TileView {
  const Problem<T>& p;
  const Scratch<T>& s;
  std::size_t i, rows;  ///< rows [i, i + rows) of the block
  const Tile& reach;
  T* strip;  ///< of the first row

  TileView(const RowBlock<T>& block, std::size_t row)
      : p(block.problem),
        s(block.scratch),
        i(row),
        rows(HWY_MIN(kTileRows, block.rows - row)),
        reach(s.tile[row / kTileRows]),
        strip(s.strip + (s.whole_rows ? row * s.strip_stride : 0)) {}

  /// How many panels from key `first` to key `end` on hide nothing by causal, window and lengths
  /// and add no terms.
  std::size_t plain_panels(std::int64_t first, std::int64_t end) const {
    if (has_terms(p) || first < reach.all_first) return 0;
    return static_cast<std::size_t>(greater(0, lesser(end, reach.all_last) - first)) / kPanel<T>;
  }
};

/// From scaled scores to masked ones, in place.
template <class T>
void mask_panel(const Problem<T>& p, const PanelScores<T>& scores) {
  if (p.softcap > 0 && !p.softcap_last) scores.softcap();
  if (p.distances.data) scores.add_distances();
  if (has_biases(p)) scores.add_biases();
  if (p.softcap > 0 && p.softcap_last) {
    scores.softcap();
    if (has_biases(p)) scores.hide_biased();
  }
  if (has_masks(p)) scores.hide_masked();
  scores.hide_unreached();
}

/// The same from raw scores, where scaled or masked ones are asked for: in the units of the scores,
/// and for every key, whether it is seen or not.
template <class T>
void show_panel(const TileView<T>& tile, std::int64_t first, bool seen, std::size_t column) {
  const auto& [p, s, i, rows, reach, strip] = tile;
  const std::size_t from = i * s.strip_stride + column;
  const auto panel = [&](T* scores) {
    return PanelScores<T>(p, s.row + i, rows, first, kTileVectors, scores, s.strip_stride);
  };
  scale_raw<T>(rows, kTileVectors, s.raw + from, s.masked + from, s.strip_stride, p.scale, nullptr);
  if (s.scaled != nullptr) {
    scale_raw<T>(rows, kTileVectors, s.raw + from, s.scaled + from, s.strip_stride, p.scale,
                 nullptr);
    if (p.softcap > 0 && !p.softcap_last) panel(s.scaled + from).softcap();
  }
  if (!seen) return panel(s.masked + from).hide();
  mask_panel(p, panel(s.masked + from));
  panel(s.masked + from).finish(strip_unit(p), strip + column, s.running_max + i * kLanes<T>);
}

/// Scores against the panel of keys that starts at `first`, of which the masks show `masks`, into
/// column `column` of the strip.
template <class T>
void score_panel(const TileView<T>& tile, std::int64_t first, Seen masks, const T* keys,
                 std::size_t column) {
  const auto& [p, s, i, rows, reach, strip] = tile;
  const T* query = s.query + i * p.D;
  T* running_max = s.running_max + i * kLanes<T>;
  constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);
  const auto width = static_cast<std::size_t>(between(0, reach.last - first, kWidth));
  const bool reached = width > 0 && reach.first < first + kWidth;
  const std::size_t vectors =
      reached && masks != Seen::none ? round_up(width, kLanes<T>) / kLanes<T> : 0;
  const bool plain = masks == Seen::all && tile.plain_panels(first, first + kWidth) == 1;
  T* plain_max = plain ? running_max : nullptr;
  if (s.raw != nullptr) {
    T* raw = s.raw + i * s.strip_stride + column;
    score_tile<T>(rows, kTileVectors, 1, p.D, query, keys, T(1), raw, s.strip_stride, nullptr);
    if (s.masked != nullptr) {
      show_panel(tile, first, vectors > 0, column);
      if (vectors > 0) return;
    } else {
      scale_raw<T>(rows, vectors, raw, strip + column, s.strip_stride, strip_scale(p), plain_max);
    }
  } else if (vectors > 0) {
    score_tile<T>(rows, vectors, 1, p.D, query, keys, strip_scale(p), strip + column,
                  s.strip_stride, plain_max);
  }
  if (plain || !reached) return;
  const PanelScores<T> scores(p, s.row + i, rows, first, vectors, strip + column, s.strip_stride);
  mask_panel(p, scores);
  scores.finish(has_terms(p) ? strip_unit(p) : T(1), strip + column, running_max);
}

/// The panel of keys that starts at `first`, packed into scratch.
template <class T>
const T* pack_panel(const RowBlock<T>& block, std::size_t first, T* panel) {
  const Problem<T>& p = block.problem;
  pack_keys(block.kv.k, first, HWY_MIN(kPanel<T>, p.S - first), p.D, block.scratch.widened, panel);
  return panel;
}

/// Key block `number` as panels; nullptr when each is best packed as it is used, there being but
/// one tile of rows to use it.
template <class T>
const T* key_panels(const RowBlock<T>& block, std::size_t number) {
  const Problem<T>& p = block.problem;
  const std::size_t from = number * kKeyBlock, to = HWY_MIN(p.S, from + kKeyBlock);
  if (block.kv.keys != nullptr) return block.kv.keys + from * p.D;
  if (block.rows <= kTileRows) return nullptr;
  T* panels = block.scratch.key_block;
  for (std::size_t key = from; key < to; key += kPanel<T>)
    pack_panel(block, key, panels + (key - from) * p.D);
  return panels;
}

/// Scores against key block `number` (its key_panels()) into the strip from `column` on; the span
/// of whole panels outside of which nothing is seen.
template <class T>
Span score_block(const RowBlock<T>& block, const TileView<T>& tile, std::size_t number,
                 const T* keys, std::size_t column) {
  const auto& [p, s, i, rows, reach, strip] = tile;
  const Span all = key_block_span(number);
  const std::int64_t end = lesser(static_cast<std::int64_t>(p.S), all.last);
  constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);
  const bool simple = keys != nullptr && s.raw == nullptr && !has_masks(p);
  Span seen;
  for (std::int64_t first = all.first; first < end; first += kWidth) {
    const std::int64_t last = lesser(end, first + kWidth);
    const bool reached = reach.first < last && reach.last > first;
    if (!reached && !s.raw) continue;
    const auto at = static_cast<std::size_t>(first - all.first);
    if (const std::size_t panels = simple ? tile.plain_panels(first, end) : 0; panels > 0) {
      score_tile<T>(rows, kTileVectors, panels, p.D, s.query + i * p.D, keys + at * p.D,
                    strip_scale(p), strip + column + at, s.strip_stride,
                    s.running_max + i * kLanes<T>);
      const std::int64_t done = first + static_cast<std::int64_t>(panels) * kWidth;
      seen = {lesser(seen.first, first), done};
      first = done - kWidth;
      continue;
    }
    const Seen masks =
        reached ? seen_by_masks(p, s.row + i, rows, first, last - first) : Seen::none;
    if (masks != Seen::none) seen = {lesser(seen.first, first), last};
    const T* panel = keys + at * p.D;
    if (keys == nullptr && (masks != Seen::none || s.raw))
      panel = pack_panel(block, static_cast<std::size_t>(first), s.key_block);
    score_panel(tile, first, masks, panel, column + at);
  }
  return seen;
}

}  // namespace attn::kernel::HWY_NAMESPACE
