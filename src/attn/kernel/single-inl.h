// Attention of a block of query rows where all keys are one block: each group of rows from its
// scores to its context at once.
#pragma once

#include "attn/kernel/begin-inl.h"
#include "attn/kernel/finish-inl.h"
#include "attn/kernel/values-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Where a group's context goes: straight to its place if its rows are evenly apart and of whole
/// vectors, otherwise into the partial.
template <class T>
Sums<T> context_of(const RowGroup<T>& group) {
  const Row<T>* row = group.s.row + group.i;
  const std::ptrdiff_t stride = group.rows > 1 ? row[1].context - row[0].context : 1;
  bool even = stride > 0 && group.p.Dv % kLanes<T> == 0;
  for (std::size_t r = 1; r < group.rows; ++r)
    even = even && row[r].context - row[r - 1].context == stride;
  if (even) return {row[0].context, static_cast<std::size_t>(stride), nullptr, nullptr};
  const Partial<T>& partial = group.s.partial;
  return {partial.values + group.i * partial.stride, partial.stride, nullptr, nullptr};
}

template <class T>
bool all_finite(const Sums<T>& sums, std::size_t rows, std::size_t width) {
  bool finite = true;
  for (std::size_t r = 0; r < rows; ++r)
    finite = finite && all_finite(sums.out + r * sums.stride, width);
  return finite;
}

/// Softmax of a group whose strip holds scores: they become weights but for the factor of each row.
template <class T>
PerRow<T> weigh_group(const RowGroup<T>& group, Span seen) {
  const Partial<T>& partial = group.s.partial;
  PerRow<T> factor;
  if (!seen.empty())
    factor = fold_softmax(partial, group.i, group.rows, softmax(group, seen, 0)).add;
  for (std::size_t r = 0; r < group.rows; ++r) factor.of[r] /= partial.sum[group.i + r];
  return factor;
}

/// The context of a group whose strip holds weights.
template <class T>
void finish_group(const RowBlock<T>& block, const Results<T>& results, const RowGroup<T>& group,
                  const ValueBlock<T>& values, Span seen, const PerRow<T>& factor) {
  const std::size_t rows = group.rows, Dv = group.p.Dv;
  Sums<T> to = context_of(group);
  to.add = factor.of;
  if (group.reached(seen).empty()) {
    for (std::size_t r = 0; r < rows; ++r) fill(to.out + r * to.stride, Dv, T(0));
  } else {
    add_values(group, values, block.kv.v, {seen, 0}, to);
    if (!values.checked && !all_finite(to, rows, Dv))
      add_values(group, packed_values(block, 0), block.kv.v, {seen, 0}, to);
  }
  for (std::size_t r = 0; r < rows; ++r)
    write_row(block, results, group.i + r, to.out + r * to.stride, T(1));
}

template <class T>
void single(RowBlock<T>& block, const Results<T>& results) {
  read_rows(block, results);
  empty_sums(block);
  const bool reached = reaches(block, 0);
  const T* keys = reached ? key_panels(block, 0) : nullptr;
  const ValueBlock<T> values = reached ? value_block(block, 0) : ValueBlock<T>{};
  for (std::size_t i = 0; i < block.rows; i += block.group_rows) {
    const RowGroup<T> group(block, i);
    const Span seen = reached ? score_block(block, group, 0, keys, 0) : Span{};
    finish_group(block, results, group, values, seen, weigh_group(group, seen));
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
