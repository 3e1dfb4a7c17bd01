// Attention of a block of query rows, with whole rows of scores, which become weights.
#pragma once

#include <limits>

#include "attn/kernel/backward-inl.h"
#include "attn/kernel/begin-inl.h"
#include "attn/kernel/finish-inl.h"
#include "attn/kernel/kernels.h"
#include "attn/kernel/normalisers-inl.h"
#include "attn/kernel/pack_keys-inl.h"
#include "attn/kernel/peak-inl.h"
#include "attn/kernel/stream-inl.h"
#include "attn/kernel/values-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Turns one row of 2^(score - max), or of weights, in the panels of `span` into weights: 0 for all
/// other keys.
template <class T>
void normalize(const AttentionProblem<T>& p, const Row<T>& row, T sum, Span span, T* weights) {
  const Tag<T> d;
  if (sum == 0 && !sees_any_key(p, row)) return fill(weights, p.S, empty_weight(p, row));
  const T by = divisor(p, sum);
  const auto from = span.empty() ? 0 : static_cast<std::size_t>(round_down(span.first, kPanel<T>));
  const auto to = span.empty() ? 0 : round_up(static_cast<std::size_t>(span.last), kPanel<T>);
  fill(weights, from, T(0));
  if (to < p.S) fill(weights + to, p.S - to, T(0));
  if (by == by) {
    const Vec<T> factor = hn::Set(d, 1 / by);
    for (std::size_t j = from; j < to; j += kLanes<T>)
      hn::Store(hn::Mul(hn::Load(d, weights + j), factor), d, weights + j);
  } else {  // NaN for visible keys, 0 for hidden ones
    for (std::size_t j = from; j < HWY_MIN(to, p.S); ++j) weights[j] = sees(p, row, j) ? by : T(0);
  }
}

/// Multiplies row r of a group by `factor` in the panels of `keys`. Needed if the sink exceeds all
/// scores, because the exponentials are then relative to the sink.
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

/// The rows of a group after dropout.
template <class T>
T* dropped_of(const RowGroup<T>& group) {
  return group.s.dropped == nullptr ? nullptr : group.s.dropped + group.i * group.s.score_stride;
}

template <class T>
void full_rows(QueryBlock<T>& block) {
  const AttentionProblem<T>& p = block.problem;
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
    const Span keys = group.reached(visible);
    if (s.unweighed) keep_scores(group, keys);
    const Softmax<T> found = softmax(group, visible, 0);
    const Factors<T> factors = fold_softmax(s.state, group.i, group.rows, found);
    if (s.unweighed)
      weigh(group, keys, found);
    else if (p.sinks)
      for (std::size_t r = 0; r < group.rows; ++r) scale_row(group, r, keys, factors.add.of[r]);
    drop_group(group, visible, 0, dropped_of(group));
  });
  Factors<T> ones;
  fill(ones.keep.of, kGroupRows, T(1));
  fill(ones.add.of, kGroupRows, T(1));
  for (std::size_t number = 0; number < blocks; ++number) {
    if (!reaches(block, number)) continue;
    const ValueBlock<T> values = value_block(block, number);
    each_group([&](const auto& group, const Span& visible) {
      const Span here = intersection(visible, key_block_span(number));
      if (here.empty()) return;
      RowGroup<T> kept = group;
      if (s.dropped) kept.scores = dropped_of(group);
      add_any_values(block, kept, number, values, {here, 0}, ones);
    });
  }
  each_group([&](const auto& group, const Span& visible) {
    const Span keys = group.reached(visible);
    for (std::size_t r = 0; r < group.rows; ++r) {
      const Row<T>& row = s.row[group.i + r];
      T* const weights = group.scores + r * s.score_stride;
      normalize(p, row, s.state.sum[group.i + r], keys, weights);
      if (s.dropped)
        drop(p, row, {0, static_cast<std::int64_t>(p.S)}, 0, weights,
             dropped_of(group) + r * s.score_stride);
    }
  });
}

}  // namespace attn::kernel::HWY_NAMESPACE

namespace attn::kernel::HWY_NAMESPACE {

/// The target of a group's context: the result itself if its rows are evenly spaced and whole
/// vectors, otherwise the softmax state.
template <class T>
Sums<T> context_target(const RowGroup<T>& group) {
  const Row<T>* row = group.s.row + group.i;
  const std::ptrdiff_t stride = group.rows > 1 ? row[1].context - row[0].context : 1;
  bool even = stride > 0 && group.p.Dv % kLanes<T> == 0;
  for (std::size_t r = 1; r < group.rows; ++r)
    even = even && row[r].context - row[r - 1].context == stride;
  if (even) return {row[0].context, static_cast<std::size_t>(stride), nullptr, nullptr};
  const SoftmaxState<T>& state = group.s.state;
  return {state.values + group.i * state.stride, state.stride, nullptr, nullptr};
}

template <class T>
bool all_finite(const Sums<T>& sums, std::size_t rows, std::size_t width) {
  bool finite = true;
  for (std::size_t r = 0; r < rows; ++r)
    finite = finite && all_finite(sums.out + r * sums.stride, width);
  return finite;
}

/// Replaces a group's scores by their exponentials, after dropout, and returns the factor of each
/// row that turns these into weights.
template <class T>
PerRow<T> softmax_group(const RowGroup<T>& group, Span visible) {
  const SoftmaxState<T>& state = group.s.state;
  PerRow<T> factor;
  if (!visible.empty())
    factor = fold_softmax(state, group.i, group.rows, softmax(group, visible, 0)).add;
  drop_group(group, visible, 0, group.scores);
  for (std::size_t r = 0; r < group.rows; ++r) factor.of[r] /= state.sum[group.i + r];
  return factor;
}

/// Computes and writes the context of a group from its weights.
template <class T>
void finish_group(const QueryBlock<T>& block, const Results<T>& results, const RowGroup<T>& group,
                  const ValueBlock<T>& values, Span visible, const PerRow<T>& factor) {
  const std::size_t rows = group.rows, Dv = group.p.Dv;
  Sums<T> to = context_target(group);
  to.add = factor.of;
  if (group.reached(visible).empty()) {
    for (std::size_t r = 0; r < rows; ++r) fill(to.out + r * to.stride, Dv, T(0));
  } else {
    add_values(group, values, block.kv.v, {visible, 0}, to);
    if (!values.checked && !all_finite(to, rows, Dv))
      add_values(group, packed_values(block, 0), block.kv.v, {visible, 0}, to);
  }
  for (std::size_t r = 0; r < rows; ++r)
    write_result(block, results, group.i + r, to.out + r * to.stride, T(1));
}

template <class T>
void single_block(QueryBlock<T>& block, const Results<T>& results) {
  load_rows(block, results);
  reset_state(block);
  const bool reached = reaches(block, 0);
  const T* keys = reached ? key_panels(block, 0) : nullptr;
  const ValueBlock<T> values = reached ? value_block(block, 0) : ValueBlock<T>{};
  for (std::size_t i = 0; i < block.rows; i += block.group_rows) {
    const RowGroup<T> group(block, i);
    const Span visible = reached ? score_block(block, group, 0, keys, 0) : Span{};
    finish_group(block, results, group, values, visible, softmax_group(group, visible));
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
Kernels<T> make_kernels() {
  Kernels<T> kernels;
  kernels.geometry = {kLanes<T>, kPanel<T>, kTileRows, kGroupRows, kBackwardKeys};
  kernels.pack_keys = pack_keys<T>;
  kernels.pack_values = pack_values<T>;
  kernels.begin = begin<T>;
  kernels.stream = stream<T>;
  kernels.full_rows = full_rows<T>;
  kernels.merge = merge<T>;
  kernels.finish = finish<T>;
  kernels.single_block = single_block<T>;
  kernels.backward_begin = backward_begin<T>;
  kernels.backward_rows = backward_rows<T>;
  kernels.backward_write = backward_write<T>;
  kernels.multiply_add = multiply_add<T>;
  return kernels;
}

}  // namespace attn::kernel::HWY_NAMESPACE
