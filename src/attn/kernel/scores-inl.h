// The scores of a group of queries and a key block, in the form that the softmax requires.
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/modifiers-inl.h"
#include "attn/kernel/pack_keys-inl.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/tile-inl.h"
#include "attn/kernel/unpacked_keys-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Whether any modifier changes scores, other than by hiding keys.
template <class T>
HWY_INLINE bool changes_scores(const AttentionProblem<T>& p) {
  return has_biases(p) || p.distances.data || p.softcap > 0;
}

/// The softmax takes scores in units of log(2) * temperature, for exp2(). If scores are capped, or
/// scaled or masked scores are kept, finish_row() converts them; otherwise the scale includes the
/// unit.
template <class T>
HWY_INLINE T softmax_unit(const AttentionProblem<T>& p) {
  return static_cast<T>(HWY_MIN(kLog2e / p.temperature, double(std::numeric_limits<T>::max())));
}
template <class T>
HWY_INLINE T score_scale(const AttentionProblem<T>& p) {
  return p.softcap > 0 ? p.scale : static_cast<T>(p.scale * (kLog2e / p.temperature));
}

HWY_INLINE Span intersection(Span a, Span b) {
  return {max64(a.first, b.first), min64(a.last, b.last)};
}

HWY_INLINE Span key_block_span(std::size_t number) {
  const auto first = static_cast<std::int64_t>(number * kKeyBlock);
  return {first, first + static_cast<std::int64_t>(kKeyBlock)};
}

/// The rows of a block that are computed together.
template <class T>
struct RowGroup {
  const AttentionProblem<T>& p;
  const Scratch<T>& s;
  std::size_t i, rows;  ///< rows [i, i + rows) of the block
  const Reach& reach;
  FactorForm factors;
  std::size_t depth;    ///< elements of a query or key
  const T* query;       ///< of the first row
  const T* transposed;  ///< as in QueryBlock
  T* scores;            ///< of the first row
  bool fused;           ///< modifiers can be applied in registers

  RowGroup(const QueryBlock<T>& block, std::size_t row)
      : p(block.problem),
        s(block.scratch),
        i(row),
        rows(HWY_MIN(block.group_rows, block.rows - row)),
        reach(s.reach[row / block.group_rows]),
        factors(block.kv.key_factors),
        depth(depth_of(factors, p.D)),
        query(block.query + row * depth),
        transposed(block.transposed),
        scores(s.scores + (s.full_rows ? row * s.score_stride : 0)),
        fused(s.raw == nullptr && (rows % kTileRows == 0 || factors == FactorForm::tiles) &&
              p.score == Score::product && can_fuse_modifiers(p)) {}

  Span reached(Span keys) const { return intersection(keys, {reach.first, reach.last}); }
};

/// Whether keys are read a few at a time: if only one tile of rows uses them and scores are
/// products.
template <class T>
bool reads_keys_unpacked(const QueryBlock<T>& block) {
  return block.kv.keys == nullptr && block.rows <= kTileRows &&
         block.problem.score == Score::product;
}

/// Consecutive panels of keys that are computed in the same way for a group of rows.
struct Run {
  enum class Kind {
    out_of_range,  ///< outside of all rows' key ranges
    hidden,        ///< hidden by masks
    plain,         ///< all keys are visible and scores are not changed
    fused,         ///< modifiers are applied in registers
    two_pass,      ///< modifiers are applied in a second pass
  };
  Kind kind;
  std::int64_t first;  ///< key
  std::size_t panels;
  std::size_t vectors;  ///< of each panel that any row may see

  template <class T>
  std::int64_t last() const {
    return first + static_cast<std::int64_t>(panels * kPanel<T>);
  }
  bool is_visible() const { return kind >= Kind::plain; }
};

/// Applies modifiers to a run: from raw scores if these are kept, otherwise to scaled scores in
/// place.
template <class T>
void finish_run(const RowGroup<T>& group, const Run& run, std::size_t column) {
  const AttentionProblem<T>& p = group.p;
  const Scratch<T>& s = group.s;
  const bool stages = s.masked != nullptr;
  const T scale = s.raw == nullptr ? T(1) : stages ? p.scale : score_scale(p);
  const std::size_t width = run.panels * kPanel<T>;
  const auto row_of = [&](T* matrix, std::size_t r) {
    return matrix ? matrix + (group.i + r) * s.score_stride + column : nullptr;
  };
  for (std::size_t r = 0; r < group.rows; ++r) {
    T* const out = group.scores + r * s.score_stride + column;
    const T head_scale = s.raw ? s.row[group.i + r].head_scale : T(1);
    const RowBuffers<T> buffers{s.raw ? row_of(s.raw, r) : out, scale * head_scale, out,
                                s.running_max + (group.i + r) * kLanes<T>};
    const Stages<T> kept{.scaled = row_of(s.scaled, r),
                         .masked = row_of(s.masked, r),
                         .convert = stages || p.softcap > 0,
                         .unit = softmax_unit(p)};
    if (run.is_visible())
      finish_row(p, s.row[group.i + r], run.first, width, buffers, kept);
    else
      hide_row(p, width, buffers, kept);
  }
}

/// The keys of a run: packed panels, or one unpacked panel.
template <class T>
struct RunKeys {
  const T* packed;  ///< nullptr: use `unpacked`
  const Matrix& unpacked;
};

#if ATTN_HAS_PAIRS
/// multiply_run() of pairs.
template <Term kTerm>
HWY_NOINLINE void multiply_run_of_pairs(const RowGroup<float>& group, const Run& run,
                                        std::size_t vectors, const RunKeys<float>& keys,
                                        float scale, float* out, float* running_max) {
  const AttentionProblem<float>& p = group.p;
  const Scratch<float>& s = group.s;
  if (keys.packed)
    return score_rows<float, kTerm>(group.rows, vectors, run.panels, group.depth, group.query,
                                    keys.packed, scale, out, s.score_stride, running_max);
  const auto first = static_cast<std::size_t>(run.first);
  const std::size_t count = HWY_MIN(kPanel<float>, p.S - first);
  const KeyPanel<float> stored{keys.unpacked, p.D, first, count, p.S, s.widened};
  const RoundedPanel<float> panel{stored, group.factors};
  if constexpr (kTerm == Term::tiles) {
    if (!score_keys_as_in_tiles(group.rows, vectors, group.query, stored, p.bf16_products, scale,
                                out, s.score_stride, running_max))
      score_keys_in_tiles(group.rows, vectors, group.transposed, panel, scale, out, s.score_stride,
                          running_max);
  } else {
    score_keys<float, float, kTerm>(group.rows, vectors, group.query, panel, scale, out,
                                    s.score_stride, running_max);
  }
}
#endif

/// out = scale * score for a run of panels.
template <class T>
void multiply_run(const RowGroup<T>& group, const Run& run, std::size_t vectors,
                  const RunKeys<T>& keys, T scale, T* out, T* running_max) {
#if ATTN_HAS_PAIRS
  if constexpr (kMultipliesPairs<T>) {
    if (group.factors == FactorForm::tiles)
      return multiply_run_of_pairs<Term::tiles>(group, run, vectors, keys, scale, out, running_max);
    if (group.factors == FactorForm::pairs)
      return multiply_run_of_pairs<Term::pairs>(group, run, vectors, keys, scale, out, running_max);
  }
#endif
  const AttentionProblem<T>& p = group.p;
  const Scratch<T>& s = group.s;
  if (p.score == Score::tanh)
    return score_tanh_rows(group.rows, run.panels, {p.score_weights, p.D}, group.query, keys.packed,
                           scale, out, s.score_stride, running_max);
  if (p.score == Score::distance)
    return score_rows<T, Term::distance>(group.rows, vectors, run.panels, p.D, group.query,
                                         keys.packed, scale, out, s.score_stride, running_max);
  if (keys.packed)
    return score_rows<T>(group.rows, vectors, run.panels, p.D, group.query, keys.packed, scale, out,
                         s.score_stride, running_max);
  const auto first = static_cast<std::size_t>(run.first);
  const std::size_t count = HWY_MIN(kPanel<T>, p.S - first);
  score_numbers<T>(group.rows, vectors, group.query,
                   KeyPanel<T>{keys.unpacked, p.D, first, count, p.S, s.widened},
                   group.factors == FactorForm::rounded, scale, out, s.score_stride, running_max);
}

/// score_fused_run() of pairs or numbers.
template <class T, Term kTerm>
void score_fused_run_of(const RowGroup<T>& group, const Run& run, const T* keys, T* out) {
  const AttentionProblem<T>& p = group.p;
  const Scratch<T>& s = group.s;
  const WholePanels<T> panels{s.row + group.i,  run.first,      run.panels,
                              p.masks[0].hides, score_scale(p), softmax_unit(p)};
  const auto score = [&](auto tiles) {
    tiles(group.rows, panels, group.depth, group.query, keys, out, s.score_stride,
          s.running_max + group.i * kLanes<T>);
  };
  if (has_biases(p))
    return has_masks(p) ? score(score_fused_tiles<T, kTerm, true, Marks::either>)
                        : score(score_fused_tiles<T, kTerm, true, Marks::none>);
  if (!has_masks(p)) return score(score_fused_tiles<T, kTerm, false, Marks::none>);
  p.masks[0].hides ? score(score_fused_tiles<T, kTerm, false, Marks::hidden>)
                   : score(score_fused_tiles<T, kTerm, false, Marks::shown>);
}

/// Scores with all modifiers, for a run of whole panels and whole tiles of rows.
template <class T>
void score_fused_run(const RowGroup<T>& group, const Run& run, const T* keys, T* out) {
  if constexpr (kMultipliesPairs<T>) {
    if (group.factors == FactorForm::tiles)
      return score_fused_run_of<T, Term::tiles>(group, run, keys, out);
    if (group.factors == FactorForm::pairs)
      return score_fused_run_of<T, Term::pairs>(group, run, keys, out);
  }
  score_fused_run_of<T, Term::product>(group, run, keys, out);
}

/// Computes the scores of a run from column `column` on.
template <class T>
void score_run(const RowGroup<T>& group, const Run& run, const RunKeys<T>& keys,
               std::size_t column) {
  const Scratch<T>& s = group.s;
  T* const out = group.scores + column;
  if (run.kind == Run::Kind::fused) return score_fused_run(group, run, keys.packed, out);
  if (s.raw != nullptr) {
    multiply_run(group, run, kTileVectors, keys, T(1), s.raw + group.i * s.score_stride + column,
                 static_cast<T*>(nullptr));
  } else if (run.is_visible()) {
    const bool plain = run.kind == Run::Kind::plain;
    multiply_run(group, run, run.vectors, keys, score_scale(group.p), out,
                 plain ? s.running_max + group.i * kLanes<T> : nullptr);
    if (plain) return;
  }
  if (run.kind != Run::Kind::out_of_range || s.masked != nullptr) finish_run(group, run, column);
}

/// The run of panels that starts at key `first` and ends at key `end` at the latest. With masks or
/// modifiers it has only one panel, as the next may be of another kind.
template <class T>
Run run_of(const RowGroup<T>& group, std::int64_t first, std::int64_t end, bool packed) {
  using Kind = Run::Kind;
  const AttentionProblem<T>& p = group.p;
  const Reach& reach = group.reach;
  constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);
  const std::int64_t last = min64(end, first + kWidth);
  if (reach.first >= last || reach.last <= first) return {Kind::out_of_range, first, 1, 0};
  const bool masks = has_masks(p) || has_biases(p);
  const Visibility visible =
      masks ? panel_visibility(p, group.s.row + group.i, group.rows, first, last - first)
            : Visibility::all;
  if (visible == Visibility::none) return {Kind::hidden, first, 1, 0};
  const bool added = visible == Visibility::some || changes_scores(p);
  const std::int64_t whole =
      first < reach.all_first ? 0 : (min64(end, reach.all_last) - first) / kWidth;
  if (whole > 0 && !added)
    return {Kind::plain, first, masks ? 1 : static_cast<std::size_t>(whole), kTileVectors};
  if (whole > 0 && packed && group.fused) return {Kind::fused, first, 1, kTileVectors};
  const auto width = static_cast<std::size_t>(min64(reach.last - first, kWidth));
  return {Kind::two_pass, first, 1, round_up(width, kLanes<T>) / kLanes<T>};
}

/// The longest run from key `first` on.
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

/// The packed panels of key block `number`; nullptr if keys are read unpacked.
template <class T>
const T* key_panels(const QueryBlock<T>& block, std::size_t number) {
  const AttentionProblem<T>& p = block.problem;
  const std::size_t from = number * kKeyBlock, to = HWY_MIN(p.S, from + kKeyBlock);
  const std::size_t depth = depth_of(block.kv.key_factors, p.D);
  if (block.kv.keys != nullptr) return block.kv.keys + from * depth;
  if (reads_keys_unpacked(block)) {
    const std::size_t first = HWY_MIN(rows_ahead(2 * kLanes<T>), to - from);  // as tiles copy
    prefetch_rows(Rows<T>(block.kv.k, p.D), from, first);
    return nullptr;
  }
  T* panels = block.scratch.key_block;
  for (std::size_t key = from, next; key < to; key = next) {
    next = HWY_MIN(to, key + kPanel<T>);
    pack_copied_keys(KeyPanel<T>{block.kv.k, p.D, key, next - key, p.S, block.scratch.widened},
                     block.kv.key_factors, panels + (key - from) * depth);
  }
  return panels;
}

/// Computes the scores of the keys in `all`, at most kKeyBlock, from column `column` on, with
/// `keys` packed or nullptr and `unpacked` the matrix of all keys. Returns the span of panels
/// outside of which no key is visible.
template <class T>
Span score_keys_of(const RowGroup<T>& group, Span all, const T* keys, const Matrix& unpacked,
                   std::size_t column) {
  const std::int64_t end = min64(static_cast<std::int64_t>(group.p.S), all.last);
  Span visible;
  for (std::int64_t first = all.first; first < end;) {
    const Run run = keys == nullptr ? run_of(group, first, min64(end, first + kPanel<T>), false)
                                    : longest_run(group, first, end);
    first = run.last<T>();
    const auto at = static_cast<std::size_t>(run.first - all.first);
    score_run(group, run, {keys ? keys + at * group.depth : nullptr, unpacked}, column + at);
    if (!run.is_visible()) continue;
    visible = {min64(visible.first, run.first), min64(first, end)};
  }
  return visible;
}

/// score_keys_of() for key block `number`, with `keys` from key_panels().
template <class T>
Span score_block(const QueryBlock<T>& block, const RowGroup<T>& group, std::size_t number,
                 const T* keys, std::size_t column) {
  return score_keys_of(group, key_block_span(number), keys, block.kv.k, column);
}

}  // namespace attn::kernel::HWY_NAMESPACE
