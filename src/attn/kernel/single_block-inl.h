// Attention of a block of query rows if all keys are one key block: each group of rows goes from
// its scores to its context in one step.
#pragma once

#include "attn/kernel/begin-inl.h"
#include "attn/kernel/finish-inl.h"
#include "attn/kernel/values-inl.h"

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

/// The softmax of a group's scores, which become weights except for the factor returned for each
/// row.
template <class T>
PerRow<T> softmax_group(const RowGroup<T>& group, Span visible) {
  const SoftmaxState<T>& state = group.s.state;
  PerRow<T> factor;
  if (!visible.empty())
    factor = fold_softmax(state, group.i, group.rows, softmax(group, visible, 0)).add;
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
