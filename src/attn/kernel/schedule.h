// Divides a problem into tasks and determines their memory, from shapes only.
#pragma once

#include <cstddef>

#include "attn/kernel/kernels.h"

namespace attn::kernel {

/// Of the pairs that are in memory at the same time, unless one alone is larger.
constexpr std::size_t kChunkBytes = std::size_t{64} << 20;

/// Rows are the B * H * L queries. A pair is a batch item and a key/value head; its H / G * L rows
/// are consecutive.
struct Schedule {
  bool full_rows = false;  ///< whole rows of weights or scores are requested
  bool raw = false, scaled = false, masked = false;  ///< scores to keep apart from the weights
  bool dropped = false;                              ///< keep weights after dropout apart, too
  std::size_t pairs = 0;                             ///< B * G
  std::size_t pair_rows = 0;                         ///< H / G * L
  std::size_t segment_rows =
      0;  ///< rows that are divided into blocks: those of a head, or of a pair if they are few
  std::size_t block_rows = 0;  ///< at most this many rows of a block
  std::size_t task_rows = 0;   ///< likewise if each block is a task
  std::size_t key_blocks = 0;
  FactorForm key_factors = FactorForm::numbers, value_factors = FactorForm::numbers;
  bool packed = false;      ///< pack each pair once, for all its blocks
  bool rows_first = false;  ///< a task is the same rows of several heads, which share masks
  bool split = false;       ///< compute key blocks independently, then merge

  std::size_t group_rows = 0;         ///< most rows of a group of a block
  std::size_t score_buffer_rows = 0;  ///< rows of the score buffer: a block's or a group's
  std::size_t score_stride = 0;       ///< elements
  std::size_t value_stride = 0;       ///< Dv rounded up to whole vectors
  std::size_t packed_keys = 0;        ///< elements of a pair
  std::size_t packed_values = 0;      ///< elements of a pair
  std::size_t state_size = 0;         ///< elements of a SoftmaxState of block_rows rows
  std::size_t scratch_bytes = 0;      ///< of a worker
  std::size_t chunk_pairs = 0;  ///< pairs that are in memory at the same time, packed or as states
  double work = 0;              ///< approximate number of floating point operations

  std::size_t tasks_per_segment() const { return (segment_rows + task_rows - 1) / task_rows; }
  std::size_t segments_per_pair() const { return pair_rows / segment_rows; }
};

/// The largest number of rows of a pair that are one block: 16 tiles, each of which uses a key that
/// was read once.
inline constexpr std::size_t kMaxRows = 96;

/// Operations of a worker, below which waking a thread costs more than it saves.
inline constexpr double kWorkOfOneWorker = 8e6;

template <class T>
Schedule make_schedule(const AttentionProblem<T>& problem, const Results<T>& results,
                       const Geometry& geometry);

/// Divides `memory` among a worker's scratch buffers and returns the bytes needed. With nullptr it
/// only counts.
template <class T>
std::size_t lay_out_scratch(const Schedule& schedule, const AttentionProblem<T>& problem,
                            const Geometry& geometry, std::byte* memory, Scratch<T>& scratch);

/// A state in `memory`, schedule.state_size elements.
template <class T>
SoftmaxState<T> state_at(const Schedule& schedule, const Geometry& geometry, T* memory);

}  // namespace attn::kernel
