// Attention of a block of query rows by streaming over key blocks with an online softmax
// (arXiv:1805.02867), and merging two softmax states.
#pragma once

#include "attn/kernel/begin-inl.h"
#include "attn/kernel/values-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
void stream(QueryBlock<T>& block, std::size_t from, std::size_t to) {
  for (std::size_t number = from; number < to; ++number) {
    if (!reaches(block, number)) continue;
    const T* keys = key_panels(block, number);
    const ValueBlock<T> values = value_block(block, number);
    // A group's scores stay in the level 1 cache until they are multiplied by the values.
    for (std::size_t i = 0; i < block.rows; i += block.group_rows) {
      const RowGroup<T> group(block, i);
      const Span visible = score_block(block, group, number, keys, 0);
      if (visible.empty()) continue;
      const std::int64_t origin = key_block_span(number).first;
      const Factors<T> factors =
          fold_softmax(block.scratch.state, i, group.rows, softmax(group, visible, origin));
      drop_group(group, visible, origin, group.scores);
      add_any_values(block, group, number, values, {visible, origin}, factors);
    }
  }
}

template <class T>
void merge(QueryBlock<T>& block, const SoftmaxState<T>& other) {
  const Tag<T> d;
  const SoftmaxState<T>& state = block.scratch.state;
  for (std::size_t i = 0; i < block.rows; i += block.group_rows) {
    const std::size_t rows = HWY_MIN(block.group_rows, block.rows - i);
    Softmax<T> softmax;
    for (std::size_t r = 0; r < rows; ++r) {
      softmax.max.of[r] = other.max[i + r];
      softmax.sum.of[r] = other.sum[i + r];
    }
    const Factors<T> factors = fold_softmax(state, i, rows, softmax);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t j = 0; j < state.stride; j += kLanes<T>) {
        T* values = state.values + (i + r) * state.stride + j;
        const Vec<T> added = hn::Mul(hn::Load(d, other.values + (i + r) * other.stride + j),
                                     hn::Set(d, factors.add.of[r]));
        hn::Store(hn::MulAdd(hn::Load(d, values), hn::Set(d, factors.keep.of[r]), added), d,
                  values);
      }
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
