// What a block of query rows begins with: rows and queries read, groups made, sums emptied.
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
    const Place& place = row[r].place;
    reach.all_first = greater(reach.all_first, place.first);
    reach.all_last = lesser(reach.all_last, place.last);
    if (place.first >= place.last) continue;
    reach.first = lesser(reach.first, place.first);
    reach.last = greater(reach.last, place.last);
  }
  return reach;
}

/// Whether all rows see the same keys, and no mask has to be looked at for that.
template <class T>
bool see_alike(const Problem<T>& p, const Row<T>* row, std::size_t rows) {
  bool alike = !has_masks(p) && !has_biases(p);
  for (std::size_t i = 1; alike && i < rows; ++i)
    alike = row[i].place.first == row[0].place.first && row[i].place.last == row[0].place.last;
  return alike;
}

/// The rows' queries, one behind the other: where they stand if they do so there, otherwise copied
/// to `room`.
template <class T>
const T* read_queries(const Problem<T>& p, const Row<T>* row, std::size_t rows, T* room) {
  const auto size = static_cast<std::ptrdiff_t>(p.D * sizeof(T));
  bool in_place = p.q.dtype == dtype_of<T> && p.q.strides.column == 1;
  for (std::size_t i = 1; i < rows; ++i)
    in_place = in_place && row[i].query - row[i - 1].query == size;
  if (in_place) return reinterpret_cast<const T*>(row[0].query);
  for (std::size_t i = 0; i < rows; ++i) {
    T* to = room + i * p.D;
    const Matrix query{row[i].query, p.q.dtype, 0, p.q.strides.column};
    const T* from = Rows<T>(query, p.D).at(0, to);
    for (std::size_t j = 0; from != to && j < p.D; ++j) to[j] = from[j];
  }
  return room;
}

/// Reads rows and queries. Several tiles of rows are worked on together if all see the same keys:
/// what comes between their products takes as long as for one.
template <class T>
void read_rows(RowBlock<T>& block, const Results<T>& results) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  make_rows(p, results, block.first, block.rows, s.row);
  block.query = read_queries(p, s.row, block.rows, s.query);
  const bool alike = see_alike(p, s.row, block.rows);
  const std::size_t rows = block.group_rows = alike ? kGroupRows : kTileRows;
  for (std::size_t i = 0; i < block.rows; i += rows)
    s.reach[i / rows] = reach_of(s.row + i, alike ? 1 : HWY_MIN(rows, block.rows - i));
  fill(s.running_max, block.rows * kLanes<T>, -kInfinity<T>);
}

/// The partial's maxima and sums before any key.
template <class T>
void empty_sums(const RowBlock<T>& block) {
  const Scratch<T>& s = block.scratch;
  const std::size_t room = round_up(block.rows, kLanes<T>) + kLanes<T>;  // vectors begin at any row
  fill(s.partial.max + block.rows, room - block.rows, -kInfinity<T>);
  fill(s.partial.sum + block.rows, room - block.rows, T(0));
  if (block.problem.sinks == nullptr || !block.has_sinks) {
    fill(s.partial.max, block.rows, -kInfinity<T>);
    return fill(s.partial.sum, block.rows, T(0));
  }
  const auto unit = static_cast<T>(kLog2e);
  const T lowest = lowest_to_multiply(unit), most = std::numeric_limits<T>::max();
  for (std::size_t i = 0; i < block.rows; ++i) {  // a sink is a key that stands before all others
    const T sink = s.row[i].sink;
    s.partial.max[i] = sink == -kInfinity<T> ? sink : HWY_MIN(HWY_MAX(sink, lowest) * unit, most);
    s.partial.sum[i] = sink == -kInfinity<T> ? T(0) : T(1);
  }
}

template <class T>
void begin(RowBlock<T>& block, const Results<T>& results) {
  const Partial<T>& partial = block.scratch.partial;
  read_rows(block, results);
  empty_sums(block);
  fill(partial.values, block.rows * partial.stride, T(0));
}

/// Whether some row of the block reaches key block `number`.
template <class T>
bool reaches(const RowBlock<T>& block, std::size_t number) {
  for (std::size_t i = 0; i < block.rows; i += block.group_rows) {
    const Reach& reach = block.scratch.reach[i / block.group_rows];
    if (!intersection({reach.first, reach.last}, key_block_span(number)).empty()) return true;
  }
  return false;
}

}  // namespace attn::kernel::HWY_NAMESPACE
