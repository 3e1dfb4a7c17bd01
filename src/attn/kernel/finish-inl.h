// The end of a block of query rows: writes context and logsumexp, also of rows that see no key.
#pragma once

#include <cmath>
#include <limits>

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/softmax-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Whether a row sees any key. If it does and its sum is 0, all its scores are -inf and its weights
/// are NaN.
template <class T>
bool sees_any_key(const AttentionProblem<T>& p, const Row<T>& row) {
  for (std::int64_t j = row.range.begin; j < row.range.end; ++j)
    if (sees(p, row, static_cast<std::size_t>(j))) return true;
  return false;
}

/// The weight of each key in a row that sees none.
template <class T>
T empty_weight(const AttentionProblem<T>& p, const Row<T>& row) {
  return row.range.padding || p.S == 0 ? T(0) : p.empty_weight;
}

/// Whether dropout keeps the weight of any key; of those that the row sees, if `seen`.
template <class T>
bool keeps_any_key(const AttentionProblem<T>& p, const Row<T>& row, bool seen) {
  for (std::size_t j = 0; j < p.S; ++j)
    if (dropout_factor(p, row, j) != 0 && (!seen || sees(p, row, j))) return true;
  return false;
}

/// The mean of all values, hidden or not, times the factors of dropout, summed in parts of
/// kSumDepth.
template <class T>
void average_values(const QueryBlock<T>& block, const Row<T>& row) {
  const AttentionProblem<T>& p = block.problem;
  const Rows<T> values(block.kv.v, p.Dv);
  T *const sums = block.scratch.saved, *const out = row.context;
  fill(out, p.Dv, T(0));
  for (std::size_t key = 0; key < p.S; key += kSumDepth<T>) {
    fill(sums, p.Dv, T(0));
    for (std::size_t k = key; k < HWY_MIN(p.S, key + kSumDepth<T>); ++k) {
      const T* value = values.at(k, block.scratch.widened);
      if (p.bf16_products) value = rounded_row(value, p.Dv, block.scratch.widened);
      const T factor = dropout_factor(p, row, k);
      for (std::size_t j = 0; factor != 0 && j < p.Dv; ++j) sums[j] += factor * value[j];
    }
    for (std::size_t j = 0; j < p.Dv; ++j) out[j] += sums[j];
  }
  for (std::size_t j = 0; j < p.Dv; ++j) out[j] *= p.empty_weight;
}

/// What the exponentials or weights of a row that sees keys are divided by last: the sum of
/// exponentials, or 1 if they are weights already. NaN if all weights are NaN.
template <class T>
T divisor(const AttentionProblem<T>& p, T sum) {
  if (p.normaliser == Normaliser::sigmoid) return 1;
  if (sum == 0) return std::numeric_limits<T>::quiet_NaN();
  return p.normaliser == Normaliser::softmax || !is_finite(sum) ? sum : T(1);
}

/// Writes the context of a row whose visible keys all have the weight 0: 0 times their values.
template <class T>
void finish_zero_row(const QueryBlock<T>& block, const Row<T>& row) {
  const AttentionProblem<T>& p = block.problem;
  fill(row.context, p.Dv, T(0));
  for (std::size_t key = 0; key < p.S; ++key)
    for (std::size_t j = 0; sees(p, row, key) && j < p.Dv; ++j)
      row.context[j] += T(0) * value_factor(p, block.kv.v, key, j);
}

/// Writes the context of a row whose sum is 0.
template <class T>
void finish_empty_row(const QueryBlock<T>& block, const Row<T>& row) {
  const AttentionProblem<T>& p = block.problem;
  const bool seen = sees_any_key(p, row);
  if (seen && p.normaliser == Normaliser::sigmoid) return finish_zero_row(block, row);
  const T weight = seen ? divisor(p, T(0)) : empty_weight(p, row);
  if (weight > 0) return average_values(block, row);
  fill(row.context, p.Dv, keeps_any_key(p, row, seen) ? weight : T(0));
}

/// log(2^max * sum), where max may be infinite.
template <class T>
T logsumexp_of(T max, T sum) {
  if (sum == 0) return -kInfinity<T>;
  return max == kInfinity<T> ? max : static_cast<T>(max / kLog2e + std::log(double(sum)));
}

/// logsumexp in base 2, as the backward kernel subtracts it from scores.
template <class T>
T in_base_2(T logsumexp) {
  return logsumexp == -kInfinity<T> ? T(0) : static_cast<T>(logsumexp * kLog2e);
}

/// log2(2^max * sum) - in_base_2(logsumexp); 0 without visible keys.
template <class T>
T remainder_of(T max, T sum, T logsumexp) {
  if (sum == 0 || !std::isfinite(logsumexp)) return 0;
  return static_cast<T>(double(max) - double(in_base_2(logsumexp)) + std::log2(double(sum)));
}

/// Writes the logsumexp of row i and its context, `values` times `factor`; the latter only if
/// `values` is not the context itself. Adding 0 turns -0 into +0, so that the sign does not depend
/// on hidden keys.
template <class T>
HWY_INLINE void write_result(const QueryBlock<T>& block, const Results<T>& results, std::size_t i,
                             const T* values, T factor) {
  const SoftmaxState<T>& state = block.scratch.state;
  const Row<T>& row = block.scratch.row[i];
  const T sum = state.sum[i];
  if (sum == 0)
    finish_empty_row(block, row);
  else if (row.dropout && !is_finite(sum) && !keeps_any_key(block.problem, row, true))
    finish_zero_row(block, row);
  else if (values != row.context)
    for (std::size_t j = 0; j < block.problem.Dv; ++j) row.context[j] = values[j] * factor + T(0);
  if (!results.logsumexp) return;
  const T log = logsumexp_of(state.max[i], sum);
  results.logsumexp[block.first + i] = log;
  if (results.remainder) results.remainder[block.first + i] = remainder_of(state.max[i], sum, log);
}

template <class T>
void finish(QueryBlock<T>& block, const Results<T>& results) {
  const SoftmaxState<T>& state = block.scratch.state;
  for (std::size_t i = 0; i < block.rows; ++i)
    write_result(block, results, i, state.values + i * state.stride,
                 1 / divisor(block.problem, state.sum[i]));
}

}  // namespace attn::kernel::HWY_NAMESPACE
