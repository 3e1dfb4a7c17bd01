#include "attn/kernel/schedule.h"

#include <algorithm>

namespace attn::kernel {
namespace {

constexpr std::size_t kScoreBytes = 768u << 10;  // part of a worker's level 2 cache
constexpr std::size_t kEnoughTasks = 32;         // to balance the usual numbers of threads

/// Whether the masks and biases that heads share are larger than most caches. It is then faster to
/// read them once for all heads.
template <class T>
bool shares_much(const AttentionProblem<T>& p) {
  constexpr std::size_t kMuch = std::size_t{64} << 20;
  std::size_t row_bytes = 0;
  const auto count = [&](const auto& each) {
    const bool shared = each.data && each.strides.head == 0 && each.strides.row != 0;
    if (shared) row_bytes += p.S * sizeof(*each.data);
  };
  for (const Mask& mask : p.masks) count(mask);
  for (const Bias<T>& bias : p.biases) count(bias);
  return p.H > 1 && p.L * row_bytes > kMuch;
}

/// Rows of a block: many, to reuse each key, but few enough to keep the scores in the cache.
std::size_t choose_rows(std::size_t score_row_bytes) {
  std::size_t rows = kMaxRows;
  while (rows > 6 && rows * score_row_bytes > kScoreBytes) rows /= 2;
  return rows;
}

/// Rows of a block if blocks are tasks: few enough to balance the threads.
std::size_t choose_task_rows(const Schedule& schedule) {
  std::size_t rows = schedule.block_rows;
  const auto tasks = [&] {
    return schedule.pairs * schedule.segments_per_pair() *
           ((schedule.segment_rows + rows - 1) / rows);
  };
  while (rows > 12 && tasks() < kEnoughTasks) rows /= 2;
  return rows;
}

/// The size of an array with one number for each row, padded so that a vector can be loaded at any
/// row.
std::size_t row_elements(const Schedule& schedule, const Geometry& geometry) {
  return round_up(schedule.block_rows, geometry.lanes) + geometry.lanes;
}

/// Pairs of queries have no place for a factor of each head; values then are no pairs either, so
/// that groups have the rows of one form. AMX also multiplies queries and keys that hold bfloat16,
/// because their products are exact, and then values that do.
template <class T>
void choose_factors(const AttentionProblem<T>& p, const Geometry& geometry, Schedule& schedule) {
  const FactorForm fastest = p.head_scales ? FactorForm::rounded : geometry.bf16_factors;
  const bool in_tiles =
      fastest == FactorForm::tiles && p.score == Score::product && p.q.holds_bf16 && p.k.holds_bf16;
  if (p.bf16_products || in_tiles) schedule.key_factors = fastest;
  if (p.bf16_products || (in_tiles && p.v.holds_bf16)) schedule.value_factors = fastest;
}

}  // namespace

template <class T>
Schedule make_schedule(const AttentionProblem<T>& p, const Results<T>& results,
                       const Geometry& geometry) {
  Schedule schedule;
  schedule.scaled = results.on_rows && results.scaled;
  schedule.masked = results.on_rows && (results.scaled || results.masked);
  schedule.raw = results.on_rows && (results.scores || schedule.masked);
  schedule.full_rows = p.normaliser != Normaliser::softmax ||
                       (results.on_rows && (schedule.raw || results.weights || results.dropped));
  schedule.dropped = schedule.full_rows && p.dropout.data != nullptr;
  schedule.pairs = p.B * p.G;
  schedule.pair_rows = p.H / p.G * p.L;
  schedule.key_blocks = key_blocks(p.S);
  const std::size_t padded_keys = round_up(p.S, geometry.panel);
  // One extra vector, so that rows do not all map to the same cache sets.
  schedule.score_stride =
      (schedule.full_rows ? padded_keys : std::min(padded_keys, kKeyBlock)) + geometry.lanes;
  schedule.value_stride = round_up(p.Dv, geometry.lanes);
  choose_factors(p, geometry, schedule);
  schedule.packed_keys = padded_keys * depth_of(schedule.key_factors, p.D);
  schedule.packed_values = packed_value_size(p.S, schedule.value_stride, schedule.value_factors);

  const bool few_rows = schedule.pair_rows <= kMaxRows && !schedule.full_rows;
  schedule.segment_rows = few_rows || p.L < kMaxRows / 2 ? schedule.pair_rows : p.L;
  const std::size_t score_matrices =
      schedule.full_rows ? 1 + schedule.raw + schedule.scaled + schedule.masked + schedule.dropped
                         : 0;
  schedule.rows_first = !few_rows && shares_much(p);
  schedule.block_rows = few_rows ? schedule.pair_rows
                                 : choose_rows(score_matrices * schedule.score_stride * sizeof(T));
  schedule.task_rows = few_rows ? schedule.pair_rows : choose_task_rows(schedule);
  schedule.group_rows =
      std::min(geometry.group_rows, round_up(schedule.block_rows, geometry.tile_rows));
  schedule.score_buffer_rows = schedule.full_rows ? schedule.block_rows : schedule.group_rows;
  schedule.packed = schedule.pair_rows > schedule.task_rows;
  schedule.split = few_rows && schedule.key_blocks > 1 &&
                   (schedule.pairs < 2 * kEnoughTasks || results.key_part != nullptr);
  schedule.state_size =
      2 * row_elements(schedule, geometry) + schedule.block_rows * schedule.value_stride;

  std::size_t pair_bytes = 0;
  if (schedule.packed) pair_bytes = (schedule.packed_keys + schedule.packed_values) * sizeof(T);
  if (schedule.split) pair_bytes = schedule.key_blocks * schedule.state_size * sizeof(T);
  schedule.chunk_pairs = pair_bytes == 0
                             ? schedule.pairs
                             : std::clamp<std::size_t>(kChunkBytes / pair_bytes, 1, schedule.pairs);
  // Reading and packing an element of K or V takes about as long as twenty operations on it, and a
  // tanh as twenty multiply-adds.
  const std::size_t of_scores = p.score == Score::tanh ? 20 * p.D : p.D;
  schedule.work = static_cast<double>(schedule.pairs) * static_cast<double>(p.S) *
                  (2.0 * static_cast<double>(schedule.pair_rows * (of_scores + p.Dv)) +
                   20.0 * static_cast<double>(p.D + p.Dv));
  Scratch<T> scratch;
  schedule.scratch_bytes = lay_out_scratch(schedule, p, geometry, nullptr, scratch);
  return schedule;
}

template <class T>
SoftmaxState<T> state_at(const Schedule& schedule, const Geometry& geometry, T* memory) {
  const std::size_t rows = row_elements(schedule, geometry);
  return {memory, memory + rows, memory + 2 * rows, schedule.value_stride};
}

template <class T>
std::size_t lay_out_scratch(const Schedule& schedule, const AttentionProblem<T>& p,
                            const Geometry& geometry, std::byte* memory, Scratch<T>& s) {
  constexpr std::size_t kLine = 64;
  std::size_t bytes = 0;
  const auto take = [&]<class X>(X*& pointer, std::size_t count) {
    if (memory) pointer = reinterpret_cast<X*>(memory + bytes);
    bytes = round_up(bytes + count * sizeof(X), kLine);
  };
  const std::size_t rows = schedule.block_rows, groups = rows / geometry.tile_rows + 1;
  take(s.row, rows);
  take(s.reach, groups);
  take(s.visible, groups);
  take(s.query, rows * round_up(p.D, 2));
  s.full_rows = schedule.full_rows;
  s.score_stride = schedule.score_stride;
  take(s.scores, schedule.score_buffer_rows * schedule.score_stride);
  if (schedule.raw) take(s.raw, rows * schedule.score_stride);
  if (schedule.scaled) take(s.scaled, rows * schedule.score_stride);
  if (schedule.masked) take(s.masked, rows * schedule.score_stride);
  if (p.normaliser != Normaliser::softmax)
    take(s.unweighed, schedule.group_rows * schedule.score_stride);
  if (schedule.dropped) take(s.dropped, rows * schedule.score_stride);
  const FactorForm factors = schedule.value_factors;
  if (factors == FactorForm::rounded || factors == FactorForm::pairs)
    take(s.weights, geometry.group_rows * depth_of(factors, kKeyBlock));
  take(s.running_max, rows * geometry.lanes);
  T* state = nullptr;
  take(state, schedule.state_size);
  if (memory) s.state = state_at(schedule, geometry, state);
  take(s.saved, geometry.group_rows * schedule.value_stride);
  take(s.widened, geometry.panel * std::max(p.D, p.Dv));
  if (!schedule.packed) take(s.key_block, kKeyBlock * p.D);
  if (!schedule.packed)
    take(s.value_block, packed_value_size(kKeyBlock, schedule.value_stride, factors));
  return bytes;
}

template Schedule make_schedule(const AttentionProblem<float>&, const Results<float>&,
                                const Geometry&);
template Schedule make_schedule(const AttentionProblem<double>&, const Results<double>&,
                                const Geometry&);
template SoftmaxState<float> state_at(const Schedule&, const Geometry&, float*);
template SoftmaxState<double> state_at(const Schedule&, const Geometry&, double*);
template std::size_t lay_out_scratch(const Schedule&, const AttentionProblem<float>&,
                                     const Geometry&, std::byte*, Scratch<float>&);
template std::size_t lay_out_scratch(const Schedule&, const AttentionProblem<double>&,
                                     const Geometry&, std::byte*, Scratch<double>&);

}  // namespace attn::kernel
