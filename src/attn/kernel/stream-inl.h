// Attention of a block of query rows by streaming over key blocks, and how two parts of it are put
// together (online softmax: arXiv:1805.02867).
#pragma once

#include "attn/kernel/begin-inl.h"
#include "attn/kernel/values-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
void stream(RowBlock<T>& block, std::size_t from, std::size_t to) {
  for (std::size_t number = from; number < to; ++number) {
    if (!reaches(block, number)) continue;
    const T* keys = key_panels(block, number);
    const ValueBlock<T> values = value_block(block, number);
    // A group's scores stay in the first level cache until they have met the values.
    for (std::size_t i = 0; i < block.rows; i += block.group_rows) {
      const RowGroup<T> group(block, i);
      const Span seen = score_block(block, group, number, keys, 0);
      if (seen.empty()) continue;
      const std::int64_t origin = key_block_span(number).first;
      const Factors<T> factors =
          fold_softmax(block.scratch.partial, i, group.rows, softmax(group, seen, origin));
      add_any_values(block, group, number, values, {seen, origin}, factors);
    }
  }
}

template <class T>
void merge(RowBlock<T>& block, const Partial<T>& other) {
  const Tag<T> d;
  const Partial<T>& partial = block.scratch.partial;
  for (std::size_t i = 0; i < block.rows; i += block.group_rows) {
    const std::size_t rows = HWY_MIN(block.group_rows, block.rows - i);
    Softmax<T> softmax;
    for (std::size_t r = 0; r < rows; ++r) {
      softmax.max.of[r] = other.max[i + r];
      softmax.sum.of[r] = other.sum[i + r];
    }
    const Factors<T> factors = fold_softmax(partial, i, rows, softmax);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t j = 0; j < partial.stride; j += kLanes<T>) {
        T* values = partial.values + (i + r) * partial.stride + j;
        const Vec<T> added = hn::Mul(hn::Load(d, other.values + (i + r) * other.stride + j),
                                     hn::Set(d, factors.add.of[r]));
        hn::Store(hn::MulAdd(hn::Load(d, values), hn::Set(d, factors.keep.of[r]), added), d,
                  values);
      }
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
