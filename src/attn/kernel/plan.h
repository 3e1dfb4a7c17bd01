// How a problem is cut into tasks, from its shape alone, and what memory they need.
#pragma once

#include <cstddef>

#include "attn/kernel/kernels.h"

namespace attn::kernel {

/// Rows are counted flat, (B * H * L) of them; a pair is a batch item and a key/value head, and its
/// H / G * L rows are neighbours.
struct Plan {
  bool strip = false;                                ///< whole rows of weights or scores are wanted
  bool raw = false, scaled = false, masked = false;  ///< these are kept beside the strip
  std::size_t pairs = 0;                             ///< B * G
  std::size_t pair_rows = 0;                         ///< H / G * L
  std::size_t segment_rows = 0;  ///< rows that blocks are cut from: a head's, or a pair's if few
  std::size_t block_rows = 0;    ///< at most this many rows of a block
  std::size_t task_rows = 0;     ///< the same where each block is a task of its own
  std::size_t key_blocks = 0;
  bool packed = false;      ///< pack a pair once, for its several blocks of rows
  bool rows_first = false;  ///< compute the same rows of all heads, which share masks, at once
  bool split = false;       ///< compute each key block by itself and merge after

  std::size_t strip_rows = 0;     ///< that the strip has room for: all, or those of a group
  std::size_t strip_stride = 0;   ///< elements
  std::size_t value_stride = 0;   ///< Dv in whole vectors
  std::size_t packed_keys = 0;    ///< elements of a pair
  std::size_t packed_values = 0;  ///< elements of a pair
  std::size_t partial_size = 0;   ///< elements of a Partial of block_rows rows
  std::size_t scratch_bytes = 0;  ///< of a worker
  std::size_t wave = 0;           ///< pairs that stand packed, or as partials, in memory together
  double work = 0;                ///< about how many floating point operations all of it takes

  std::size_t tasks_per_segment() const { return (segment_rows + task_rows - 1) / task_rows; }
  std::size_t segments_per_pair() const { return pair_rows / segment_rows; }
};

template <class T>
Plan make_plan(const Problem<T>& problem, const Results<T>& results, const Geometry& geometry);

/// Lays a worker's scratch out from `memory` on; with nullptr, only counts. Returns the bytes.
template <class T>
std::size_t lay_out(const Plan& plan, const Problem<T>& problem, const Geometry& geometry,
                    std::byte* memory, Scratch<T>& scratch);

/// A partial in `memory`, plan.partial_size elements.
template <class T>
Partial<T> partial_at(const Plan& plan, const Geometry& geometry, T* memory);

}  // namespace attn::kernel
