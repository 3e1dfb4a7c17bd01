// What a block of query rows ends with: contexts and logsumexps written, those of rows that see
// nothing among them.
#pragma once

#include <cmath>
#include <limits>

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/softmax-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Whether a row sees any key: if so and its sum is 0, then all its scores are -inf, and their
/// differences NaN.
template <class T>
bool sees_any(const Problem<T>& p, const Row<T>& row) {
  for (std::int64_t j = row.place.first; j < row.place.last; ++j)
    if (sees(p, row, static_cast<std::size_t>(j))) return true;
  return false;
}

/// The weight of each key in a row that sees none; 0 of no keys is nothing.
template <class T>
T empty_weight(const Problem<T>& p, const Row<T>& row) {
  return row.place.padding || p.S == 0 ? T(0) : p.empty_weight;
}

/// The mean of all values, hidden or not, in short sums.
template <class T>
void average_values(const RowBlock<T>& block, T* out) {
  const Problem<T>& p = block.problem;
  const Rows<T> values(block.kv.v, p.Dv);
  T* sums = block.scratch.saved;
  fill(out, p.Dv, T(0));
  for (std::size_t key = 0; key < p.S; key += kSumDepth<T>) {
    fill(sums, p.Dv, T(0));
    for (std::size_t k = key; k < HWY_MIN(p.S, key + kSumDepth<T>); ++k) {
      const T* value = values.at(k, block.scratch.widened);
      for (std::size_t j = 0; j < p.Dv; ++j) sums[j] += value[j];
    }
    for (std::size_t j = 0; j < p.Dv; ++j) out[j] += sums[j];
  }
  for (std::size_t j = 0; j < p.Dv; ++j) out[j] *= p.empty_weight;
}

/// The context of a row whose sum is 0.
template <class T>
void finish_nothing(const RowBlock<T>& block, const Row<T>& row) {
  const Problem<T>& p = block.problem;
  const T weight = sees_any(p, row) ? std::numeric_limits<T>::quiet_NaN() : empty_weight(p, row);
  if (weight > 0) return average_values(block, row.context);
  fill(row.context, p.Dv, weight);
}

/// log(2^max sum): of an infinite maximum there is nothing to sum.
template <class T>
T logsumexp_of(T max, T sum) {
  if (sum == 0) return -kInfinity<T>;
  return max == kInfinity<T> ? max : static_cast<T>(max / kLog2e + std::log(double(sum)));
}

/// The context of row i, `values` times `factor`, unless it stands there already, and logsumexp. A
/// zero is +0: what a key that is hidden from the row makes of a -0, too.
template <class T>
HWY_INLINE void write_row(const RowBlock<T>& block, const Results<T>& results, std::size_t i,
                          const T* values, T factor) {
  const Partial<T>& partial = block.scratch.partial;
  const Row<T>& row = block.scratch.row[i];
  const T sum = partial.sum[i];
  if (sum == 0)
    finish_nothing(block, row);
  else if (values != row.context)
    for (std::size_t j = 0; j < block.problem.Dv; ++j) row.context[j] = values[j] * factor + T(0);
  if (results.logsumexp) results.logsumexp[block.first + i] = logsumexp_of(partial.max[i], sum);
}

template <class T>
void finish(RowBlock<T>& block, const Results<T>& results) {
  const Partial<T>& partial = block.scratch.partial;
  for (std::size_t i = 0; i < block.rows; ++i)
    write_row(block, results, i, partial.values + i * partial.stride, 1 / partial.sum[i]);
}

}  // namespace attn::kernel::HWY_NAMESPACE
