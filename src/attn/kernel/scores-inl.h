// Scores of a group of queries and a block of keys.
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/modifiers-inl.h"
#include "attn/kernel/pack_keys-inl.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/tile-inl.h"
#include "attn/kernel/unpacked-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Whether anything but hiding comes between the scaled scores and the softmax.
template <class T>
HWY_INLINE bool has_terms(const Problem<T>& p) {
  return has_biases(p) || p.distances.data || p.softcap > 0;
}

/// Scores in the strip are in units of log(2) * temperature, as exp2() takes them. Where they are
/// capped, or what is between them and the strip is kept, it is finish_row() that makes them that;
/// otherwise it is part of the scale.
template <class T>
HWY_INLINE T strip_unit(const Problem<T>& p) {
  return static_cast<T>(HWY_MIN(kLog2e / p.temperature, double(std::numeric_limits<T>::max())));
}
template <class T>
HWY_INLINE T strip_scale(const Problem<T>& p) {
  return p.softcap > 0 ? p.scale : static_cast<T>(p.scale * (kLog2e / p.temperature));
}

HWY_INLINE Span intersection(Span a, Span b) {
  return {greater(a.first, b.first), lesser(a.last, b.last)};
}

HWY_INLINE Span key_block_span(std::size_t number) {
  const auto first = static_cast<std::int64_t>(number * kKeyBlock);
  return {first, first + static_cast<std::int64_t>(kKeyBlock)};
}

/// A few rows of a block, as many as are worked on together.
template <class T>
struct RowGroup {
  const Problem<T>& p;
  const Scratch<T>& s;
  std::size_t i, rows;  ///< rows [i, i + rows) of the block
  const Reach& reach;
  const T* query;  ///< of the first row
  T* strip;        ///< of the first row
  bool edited;     ///< whether terms can be applied before scores leave the registers

  RowGroup(const RowBlock<T>& block, std::size_t row)
      : p(block.problem),
        s(block.scratch),
        i(row),
        rows(HWY_MIN(block.group_rows, block.rows - row)),
        reach(s.reach[row / block.group_rows]),
        query(block.query + row * p.D),
        strip(s.strip + (s.whole_rows ? row * s.strip_stride : 0)),
        edited(s.raw == nullptr && rows % kTileRows == 0 && can_fuse_modifiers(p)) {}

  Span reached(Span keys) const { return intersection(keys, {reach.first, reach.last}); }
};

/// Panels of keys side by side that are alike to a group of rows.
struct Run {
  enum class Kind {
    far,     ///< out of reach of all rows
    hidden,  ///< within, but hidden by masks
    plain,   ///< all is seen and nothing is added
    edited,  ///< some is hidden or something added: before scores leave the registers
    passed,  ///< what that does not know, and panels that end within: in a second pass
  };
  Kind kind;
  std::int64_t first;  ///< key
  std::size_t panels;
  std::size_t vectors;  ///< of each panel, those that a row may see something of

  template <class T>
  std::int64_t last() const {
    return first + static_cast<std::int64_t>(panels * kPanel<T>);
  }
  bool is_seen() const { return kind >= Kind::plain; }
};

/// From scores to the strip: scores come from s.raw, where they are kept, or are scaled in the
/// strip already.
template <class T>
void finish_run(const RowGroup<T>& group, const Run& run, std::size_t column) {
  const Problem<T>& p = group.p;
  const Scratch<T>& s = group.s;
  const bool stages = s.masked != nullptr;
  const T scale = s.raw == nullptr ? T(1) : stages ? p.scale : strip_scale(p);
  const std::size_t width = run.panels * kPanel<T>;
  const auto row_of = [&](T* matrix, std::size_t r) {
    return matrix ? matrix + (group.i + r) * s.strip_stride + column : nullptr;
  };
  for (std::size_t r = 0; r < group.rows; ++r) {
    T* const out = group.strip + r * s.strip_stride + column;
    const RowBuffers<T> buffers{s.raw ? row_of(s.raw, r) : out, scale, out,
                                s.running_max + (group.i + r) * kLanes<T>};
    const Stages<T> kept{.scaled = row_of(s.scaled, r),
                         .masked = row_of(s.masked, r),
                         .convert = stages || p.softcap > 0,
                         .unit = strip_unit(p)};
    if (run.is_seen())
      finish_row(p, s.row[group.i + r], run.first, width, buffers, kept);
    else
      hide_row(p, width, buffers, kept);
  }
}

/// A run of panels' keys: packed, or one panel as it stands.
template <class T>
struct RunKeys {
  const T* packed;  ///< nullptr: as they stand
  const Matrix& unpacked;
};

/// out = scale * (q . k) for a run of panels.
template <class T>
void multiply_run(const RowGroup<T>& group, const Run& run, std::size_t vectors,
                  const RunKeys<T>& keys, T scale, T* out, T* running_max) {
  const Problem<T>& p = group.p;
  const Scratch<T>& s = group.s;
  if (keys.packed)
    return score_rows<T>(group.rows, vectors, run.panels, p.D, group.query, keys.packed, scale, out,
                         s.strip_stride, running_max);
  const auto first = static_cast<std::size_t>(run.first);
  const std::size_t count = HWY_MIN(kPanel<T>, p.S - first);
  score_keys<T>(group.rows, vectors, p.D, group.query,
                key_rows(keys.unpacked, first, count, p.D, s.widened), scale, out, s.strip_stride,
                running_max);
}

/// Scores with all modifiers, for a run of whole panels and whole tiles of rows.
template <class T>
void score_fused_run(const RowGroup<T>& group, const Run& run, const T* keys, T* out) {
  const Problem<T>& p = group.p;
  const Scratch<T>& s = group.s;
  const WholePanels<T> panels{s.row + group.i,  run.first,      run.panels,
                              p.masks[0].hides, strip_scale(p), strip_unit(p)};
  const auto score = [&](auto tiles) {
    tiles(group.rows, panels, p.D, group.query, keys, out, s.strip_stride,
          s.running_max + group.i * kLanes<T>);
  };
  if (has_biases(p))
    return has_masks(p) ? score(score_fused_tiles<T, true, Marks::either>)
                        : score(score_fused_tiles<T, true, Marks::none>);
  if (!has_masks(p)) return score(score_fused_tiles<T, false, Marks::none>);
  p.masks[0].hides ? score(score_fused_tiles<T, false, Marks::hidden>)
                   : score(score_fused_tiles<T, false, Marks::shown>);
}

/// Scores against a run of panels into column `column` of the strip.
template <class T>
void score_run(const RowGroup<T>& group, const Run& run, const RunKeys<T>& keys,
               std::size_t column) {
  const Scratch<T>& s = group.s;
  T* const out = group.strip + column;
  if (run.kind == Run::Kind::edited) return score_fused_run(group, run, keys.packed, out);
  if (s.raw != nullptr) {
    multiply_run(group, run, kTileVectors, keys, T(1), s.raw + group.i * s.strip_stride + column,
                 static_cast<T*>(nullptr));
  } else if (run.is_seen()) {
    const bool plain = run.kind == Run::Kind::plain;
    multiply_run(group, run, run.vectors, keys, strip_scale(group.p), out,
                 plain ? s.running_max + group.i * kLanes<T> : nullptr);
    if (plain) return;
  }
  if (run.kind != Run::Kind::far || s.masked != nullptr) finish_run(group, run, column);
}

/// The run of panels that starts at key `first` and ends at key `end` at the latest. Of those that
/// have masks or terms only one: what is behind it may be another.
template <class T>
Run run_of(const RowGroup<T>& group, std::int64_t first, std::int64_t end, bool packed) {
  using Kind = Run::Kind;
  const Problem<T>& p = group.p;
  const Reach& reach = group.reach;
  constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);
  const std::int64_t last = lesser(end, first + kWidth);
  if (reach.first >= last || reach.last <= first) return {Kind::far, first, 1, 0};
  const bool masks = has_masks(p) || has_biases(p);
  const Seen seen =
      masks ? seen_by_masks(p, group.s.row + group.i, group.rows, first, last - first) : Seen::all;
  if (seen == Seen::none) return {Kind::hidden, first, 1, 0};
  const bool added = seen == Seen::some || has_terms(p);
  const std::int64_t whole =
      first < reach.all_first ? 0 : (lesser(end, reach.all_last) - first) / kWidth;
  if (whole > 0 && !added)
    return {Kind::plain, first, masks ? 1 : static_cast<std::size_t>(whole), kTileVectors};
  if (whole > 0 && packed && group.edited) return {Kind::edited, first, 1, kTileVectors};
  const auto width = static_cast<std::size_t>(lesser(reach.last - first, kWidth));
  return {Kind::passed, first, 1, round_up(width, kLanes<T>) / kLanes<T>};
}

/// The same with all that are like it.
template <class T>
Run longest_run(const RowGroup<T>& group, std::int64_t first, std::int64_t end) {
  Run run = run_of(group, first, end, true);
  while (run.last<T>() < end) {
    const Run next = run_of(group, run.last<T>(), end, true);
    if (next.kind != run.kind || next.vectors != run.vectors) break;
    run.panels += next.panels;
  }
  return run;
}

/// Key block `number` as panels; nullptr when they are best read as they stand, there being but one
/// tile of rows to use them.
template <class T>
const T* key_panels(const RowBlock<T>& block, std::size_t number) {
  const Problem<T>& p = block.problem;
  const std::size_t from = number * kKeyBlock, to = HWY_MIN(p.S, from + kKeyBlock);
  if (block.kv.keys != nullptr) return block.kv.keys + from * p.D;
  if (block.rows <= kTileRows) {
    const std::size_t first = HWY_MIN(kKeysAtOnce<T>, to - from);
    prefetch_rows(Rows<T>(block.kv.k, p.D), from, first, p.D);
    return nullptr;
  }
  T* panels = block.scratch.key_block;
  for (std::size_t key = from; key < to; key += kPanel<T>)
    pack_keys(block.kv.k, key, HWY_MIN(kPanel<T>, to - key), p.D, block.scratch.widened,
              panels + (key - from) * p.D);
  return panels;
}

/// Scores against key block `number` (its key_panels()) into the strip from `column` on; the span
/// of whole panels outside of which nothing is seen.
template <class T>
Span score_block(const RowBlock<T>& block, const RowGroup<T>& group, std::size_t number,
                 const T* keys, std::size_t column) {
  const Span all = key_block_span(number);
  const std::int64_t end = lesser(static_cast<std::int64_t>(group.p.S), all.last);
  Span seen;
  for (std::int64_t first = all.first; first < end;) {
    const Run run = keys == nullptr ? run_of(group, first, lesser(end, first + kPanel<T>), false)
                                    : longest_run(group, first, end);
    first = run.last<T>();
    const auto at = static_cast<std::size_t>(run.first - all.first);
    score_run(group, run, {keys ? keys + at * group.p.D : nullptr, block.kv.k}, column + at);
    if (!run.is_seen()) continue;
    seen = {lesser(seen.first, run.first), lesser(first, end)};
  }
  return seen;
}

}  // namespace attn::kernel::HWY_NAMESPACE
