// Attention of a block of query rows with whole rows of scores, which become weights.
#pragma once

#include <limits>

#include "attn/kernel/begin-inl.h"
#include "attn/kernel/finish-inl.h"
#include "attn/kernel/values-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Turns one row of 2^(score - max) in the panels of `span` into weights: 0 for all other keys.
template <class T>
void normalize(const Problem<T>& p, const Row<T>& row, T sum, Span span, T* weights) {
  const Tag<T> d;
  if (sum == 0) {
    if (!sees_any_key(p, row)) return fill(weights, p.S, empty_weight(p, row));
    sum = std::numeric_limits<T>::quiet_NaN();
  }
  const auto from = span.empty() ? 0 : static_cast<std::size_t>(round_down(span.first, kPanel<T>));
  const auto to = span.empty() ? 0 : round_up(static_cast<std::size_t>(span.last), kPanel<T>);
  fill(weights, from, T(0));
  if (to < p.S) fill(weights + to, p.S - to, T(0));
  if (sum == sum) {
    const Vec<T> factor = hn::Set(d, 1 / sum);
    for (std::size_t j = from; j < to; j += kLanes<T>)
      hn::Store(hn::Mul(hn::Load(d, weights + j), factor), d, weights + j);
  } else {  // NaN for visible keys, 0 for hidden ones
    for (std::size_t j = from; j < HWY_MIN(to, p.S); ++j) weights[j] = sees(p, row, j) ? sum : T(0);
  }
}

/// Multiplies row r of a group by `factor` in the panels of `keys`. Needed if the sink exceeds all
/// scores: the exponentials are then relative to another maximum.
template <class T>
void scale_row(const RowGroup<T>& group, std::size_t r, Span keys, T factor) {
  const Tag<T> d;
  if (factor == 1 || keys.empty()) return;
  T* row = group.scores + r * group.s.score_stride;
  for (std::int64_t j = round_down(keys.first, kPanel<T>);
       j < static_cast<std::int64_t>(round_up(static_cast<std::size_t>(keys.last), kPanel<T>));
       j += kLanes<T>)
    hn::Store(hn::Mul(hn::Load(d, row + j), hn::Set(d, factor)), d, row + j);
}

template <class T>
void full_rows(QueryBlock<T>& block) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const std::size_t blocks = key_blocks(p.S);
  const auto each_group = [&](auto f) {
    for (std::size_t i = 0; i < block.rows; i += block.group_rows)
      f(RowGroup<T>(block, i), s.visible[i / block.group_rows]);
  };
  each_group([](const auto&, Span& visible) { visible = {}; });
  for (std::size_t number = 0; number < blocks; ++number) {
    if (s.raw == nullptr && !reaches(block, number)) continue;
    const T* keys = key_panels(block, number);
    each_group([&](const auto& group, Span& visible) {
      const Span here = score_block(block, group, number, keys, number * kKeyBlock);
      if (!here.empty()) visible = {min64(visible.first, here.first), here.last};
    });
  }
  each_group([&](const auto& group, Span& visible) {
    const Factors<T> factors =
        fold_softmax(s.state, group.i, group.rows, softmax(group, visible, 0));
    const Span keys = group.reached(visible);
    if (p.sinks)
      for (std::size_t r = 0; r < group.rows; ++r) scale_row(group, r, keys, factors.add.of[r]);
  });
  Factors<T> ones;
  fill(ones.keep.of, kGroupRows, T(1));
  fill(ones.add.of, kGroupRows, T(1));
  for (std::size_t number = 0; number < blocks; ++number) {
    if (!reaches(block, number)) continue;
    const ValueBlock<T> values = value_block(block, number);
    each_group([&](const auto& group, const Span& visible) {
      const Span here = intersection(visible, key_block_span(number));
      if (!here.empty()) add_any_values(block, group, number, values, {here, 0}, ones);
    });
  }
  each_group([&](const auto& group, const Span& visible) {
    const Span keys = group.reached(visible);
    for (std::size_t r = 0; r < group.rows; ++r)
      normalize(p, s.row[group.i + r], s.state.sum[group.i + r], keys,
                group.scores + r * s.score_stride);
  });
}

}  // namespace attn::kernel::HWY_NAMESPACE
