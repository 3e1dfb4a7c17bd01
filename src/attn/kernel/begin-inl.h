// The start of a block of query rows: reads rows and queries, forms groups, resets the softmax
// state.
#pragma once

#include <limits>

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/scores-inl.h"
#include "attn/kernel/softmax-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
Reach reach_of(const Row<T>* row, std::size_t rows) {
  Reach reach{std::numeric_limits<std::int64_t>::max(), 0, 0,
              std::numeric_limits<std::int64_t>::max()};
  for (std::size_t r = 0; r < rows; ++r) {
    const KeyRange& range = row[r].range;
    reach.all_first = max64(reach.all_first, range.begin);
    reach.all_last = min64(reach.all_last, range.end);
    if (range.begin >= range.end) continue;
    reach.first = min64(reach.first, range.begin);
    reach.last = max64(reach.last, range.end);
  }
  return reach;
}

/// Whether all rows see the same keys, without masks and biases.
template <class T>
bool have_same_keys(const AttentionProblem<T>& p, const Row<T>* row, std::size_t rows) {
  bool alike = !has_masks(p) && !has_biases(p);
  for (std::size_t i = 1; alike && i < rows; ++i)
    alike = row[i].range.begin == row[0].range.begin && row[i].range.end == row[0].range.end;
  return alike;
}

/// The rows' queries as pairs, contiguous.
template <class T>
HWY_NOINLINE const T* load_query_pairs(const AttentionProblem<T>& p, const Row<T>* row,
                                       std::size_t rows, T* buffer) {
  if constexpr (kMultipliesPairs<T>) {
    const std::size_t depth = depth_of(FactorForm::pairs, p.D);
    for (std::size_t i = 0; i < rows; ++i) {
      const Matrix query{row[i].query, p.q.dtype, 0, p.q.strides.column};
      read_pairs(Rows<T>(query, p.D), 0, p.D, buffer + i * p.D, buffer + i * depth);
    }
  }
  return buffer;
}

/// The rows' queries, contiguous: in place if possible, otherwise copied to `buffer`. If `scaled`,
/// times the scale of their head.
template <class T>
const T* load_queries(const AttentionProblem<T>& p, FactorForm factors, const Row<T>* row,
                      std::size_t rows, bool scaled, T* buffer) {
  if (are_pairs(factors)) return load_query_pairs(p, row, rows, buffer);
  const auto size = static_cast<std::ptrdiff_t>(p.D * sizeof(T));
  const bool rounded = factors == FactorForm::rounded;
  bool in_place = p.q.dtype == dtype_of<T> && p.q.strides.column == 1 && !scaled && !rounded;
  for (std::size_t i = 1; i < rows; ++i)
    in_place = in_place && row[i].query - row[i - 1].query == size;
  if (in_place) return reinterpret_cast<const T*>(row[0].query);
  for (std::size_t i = 0; i < rows; ++i) {
    T* to = buffer + i * p.D;
    const Matrix query{row[i].query, p.q.dtype, 0, p.q.strides.column};
    const T* from = Rows<T>(query, p.D).at(0, to);
    for (std::size_t j = 0; from != to && j < p.D; ++j) to[j] = from[j];
    if (rounded) round_to_bfloat16(to, p.D);
    for (std::size_t j = 0; scaled && j < p.D; ++j) to[j] *= row[i].head_scale;
  }
  return buffer;
}

/// A block's queries (rows, depth) as (depth, rows), in scratch memory behind them.
template <class T>
HWY_NOINLINE const T* transpose_queries(const QueryBlock<T>& block) {
  const std::size_t depth = depth_of(block.kv.key_factors, block.problem.D);
  if (block.rows == 1) return block.query;
  T* const to = block.scratch.query + block.rows * depth;
  for (std::size_t i = 0; i < block.rows; ++i)
    for (std::size_t k = 0; k < depth; ++k) to[k * block.rows + i] = block.query[i * depth + k];
  return to;
}

/// Reads rows and queries. If all rows see the same keys, a group is several tiles, which share the
/// work between the two products. AMX always multiplies several at once.
template <class T>
void load_rows(QueryBlock<T>& block, const Results<T>& results) {
  const AttentionProblem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  make_rows(p, results, block.first, block.rows, s.row);
  const bool scaled = p.head_scales != nullptr && s.raw == nullptr;  // finish_run() scales raw ones
  block.query = load_queries(p, block.kv.key_factors, s.row, block.rows, scaled, s.query);
  if (block.kv.key_factors == FactorForm::tiles && reads_keys_unpacked(block))
    block.transposed = transpose_queries(block);
  const bool alike = have_same_keys(p, s.row, block.rows);
  const bool tiles = block.kv.key_factors == FactorForm::tiles;
  block.group_rows = alike || tiles ? kGroupRows : kTileRows;
  if (block.kv.value_factors == FactorForm::tiles) block.group_rows = kValueTileRows;
  const std::size_t rows = block.group_rows;
  for (std::size_t i = 0; i < block.rows; i += rows)
    s.reach[i / rows] = reach_of(s.row + i, alike ? 1 : HWY_MIN(rows, block.rows - i));
  fill(s.running_max, block.rows * kLanes<T>, -kInfinity<T>);
}

/// Sets the maxima and sums of the softmax state to those before the first key.
template <class T>
void reset_state(const QueryBlock<T>& block) {
  const Scratch<T>& s = block.scratch;
  const std::size_t padded =
      round_up(block.rows, kLanes<T>) + kLanes<T>;  // vectors are loaded from any row
  fill(s.state.max + block.rows, padded - block.rows, -kInfinity<T>);
  fill(s.state.sum + block.rows, padded - block.rows, T(0));
  if (block.problem.sinks == nullptr || !block.has_sinks) {
    fill(s.state.max, block.rows, -kInfinity<T>);
    return fill(s.state.sum, block.rows, T(0));
  }
  const auto unit = static_cast<T>(kLog2e);
  const T lowest = lowest_to_multiply(unit), max = std::numeric_limits<T>::max();
  for (std::size_t i = 0; i < block.rows; ++i) {  // a sink acts as a key before all others
    const T sink = s.row[i].sink;
    s.state.max[i] = sink == -kInfinity<T> ? sink : HWY_MIN(HWY_MAX(sink, lowest) * unit, max);
    s.state.sum[i] = sink == -kInfinity<T> ? T(0) : T(1);
  }
}

template <class T>
void begin(QueryBlock<T>& block, const Results<T>& results) {
  const SoftmaxState<T>& state = block.scratch.state;
  load_rows(block, results);
  reset_state(block);
  fill(state.values, block.rows * state.stride, T(0));
}

/// Whether key block `number` is in the range of any row of the block.
template <class T>
bool reaches(const QueryBlock<T>& block, std::size_t number) {
  for (std::size_t i = 0; i < block.rows; i += block.group_rows) {
    const Reach& reach = block.scratch.reach[i / block.group_rows];
    if (!intersection({reach.first, reach.last}, key_block_span(number)).empty()) return true;
  }
  return false;
}

}  // namespace attn::kernel::HWY_NAMESPACE
