#include "attn/kernel/plan.h"

#include <algorithm>

namespace attn::kernel {
namespace {

constexpr std::size_t kMostRows = 96;            // 16 tiles: keys are read this much less often
constexpr std::size_t kStripBytes = 768u << 10;  // of one worker's level 2 cache
constexpr std::size_t kWaveBytes = std::size_t{64} << 20;
constexpr std::size_t kEnoughTasks = 32;  // for any usual number of threads to share evenly

/// Whether heads share more of masks and biases than most caches hold: then these are better read
/// for all heads at once.
template <class T>
bool shares_much(const Problem<T>& p) {
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

/// Rows of a block: many, to use each key often, yet few enough for the strip to stay in cache.
std::size_t choose_rows(std::size_t strip_row_bytes) {
  std::size_t rows = kMostRows;
  while (rows > 6 && rows * strip_row_bytes > kStripBytes) rows /= 2;
  return rows;
}

/// Rows of a block where blocks are tasks: few enough for these to be shared out.
std::size_t choose_task_rows(const Plan& plan) {
  std::size_t rows = plan.block_rows;
  const auto tasks = [&] {
    return plan.pairs * plan.segments_per_pair() * ((plan.segment_rows + rows - 1) / rows);
  };
  while (rows > 12 && tasks() < kEnoughTasks) rows /= 2;
  return rows;
}

/// Elements for a number a row, of which a vector can be loaded from any row on.
std::size_t row_room(const Plan& plan, const Geometry& geometry) {
  return round_up(plan.block_rows, geometry.lanes) + geometry.lanes;
}

}  // namespace

template <class T>
Plan make_plan(const Problem<T>& p, const Results<T>& results, const Geometry& geometry) {
  Plan plan;
  plan.scaled = results.sink && results.scaled;
  plan.masked = results.sink && (results.scaled || results.masked);
  plan.raw = results.sink && (results.scores || plan.masked);
  plan.strip = results.sink && (plan.raw || results.weights);
  plan.pairs = p.B * p.G;
  plan.pair_rows = p.H / p.G * p.L;
  plan.key_blocks = key_blocks(p.S);
  const std::size_t padded_keys = round_up(p.S, geometry.panel);
  // One vector more than the keys need, so that rows do not all fall into the same sets of a cache.
  plan.strip_stride =
      (plan.strip ? padded_keys : std::min(padded_keys, kKeyBlock)) + geometry.lanes;
  plan.value_stride = round_up(p.Dv, geometry.lanes);
  plan.packed_keys = padded_keys * p.D;
  plan.packed_values = p.S * plan.value_stride;

  const bool few_rows = plan.pair_rows <= kMostRows && !plan.strip;
  plan.segment_rows = few_rows || p.L < kMostRows / 2 ? plan.pair_rows : p.L;
  const std::size_t strips = plan.strip ? 1 + plan.raw + plan.scaled + plan.masked : 0;
  plan.rows_first = !few_rows && shares_much(p);
  plan.block_rows = few_rows ? plan.pair_rows : choose_rows(strips * plan.strip_stride * sizeof(T));
  plan.task_rows = few_rows ? plan.pair_rows : choose_task_rows(plan);
  plan.strip_rows =
      plan.strip ? plan.block_rows
                 : std::min(geometry.group_rows, round_up(plan.block_rows, geometry.tile_rows));
  plan.packed = plan.pair_rows > plan.task_rows;
  plan.split = few_rows && plan.key_blocks > 1 && plan.pairs < 2 * kEnoughTasks;
  plan.partial_size = 2 * row_room(plan, geometry) + plan.block_rows * plan.value_stride;

  std::size_t pair_bytes = 0;
  if (plan.packed) pair_bytes = (plan.packed_keys + plan.packed_values) * sizeof(T);
  if (plan.split) pair_bytes = plan.key_blocks * plan.partial_size * sizeof(T);
  plan.wave = pair_bytes == 0 ? plan.pairs
                              : std::clamp<std::size_t>(kWaveBytes / pair_bytes, 1, plan.pairs);
  // Reading and packing an element of K or V takes about as long as twenty operations on it.
  plan.work = static_cast<double>(plan.pairs) * static_cast<double>(p.S) *
              static_cast<double>(p.D + p.Dv) * (2.0 * static_cast<double>(plan.pair_rows) + 20.0);
  Scratch<T> scratch;
  plan.scratch_bytes = lay_out(plan, p, geometry, nullptr, scratch);
  return plan;
}

template <class T>
Partial<T> partial_at(const Plan& plan, const Geometry& geometry, T* memory) {
  const std::size_t rows = row_room(plan, geometry);
  return {memory, memory + rows, memory + 2 * rows, plan.value_stride};
}

template <class T>
std::size_t lay_out(const Plan& plan, const Problem<T>& p, const Geometry& geometry,
                    std::byte* memory, Scratch<T>& s) {
  constexpr std::size_t kLine = 64;
  std::size_t bytes = 0;
  const auto take = [&]<class X>(X*& pointer, std::size_t count) {
    if (memory) pointer = reinterpret_cast<X*>(memory + bytes);
    bytes = round_up(bytes + count * sizeof(X), kLine);
  };
  const std::size_t rows = plan.block_rows, groups = rows / geometry.tile_rows + 1;
  take(s.row, rows);
  take(s.reach, groups);
  take(s.seen, groups);
  take(s.query, rows * p.D);
  s.whole_rows = plan.strip;
  s.strip_stride = plan.strip_stride;
  take(s.strip, plan.strip_rows * plan.strip_stride);
  if (plan.raw) take(s.raw, rows * plan.strip_stride);
  if (plan.scaled) take(s.scaled, rows * plan.strip_stride);
  if (plan.masked) take(s.masked, rows * plan.strip_stride);
  take(s.running_max, rows * geometry.lanes);
  T* partial = nullptr;
  take(partial, plan.partial_size);
  if (memory) s.partial = partial_at(plan, geometry, partial);
  take(s.saved, geometry.group_rows * plan.value_stride);
  take(s.widened, geometry.panel * std::max(p.D, p.Dv));
  if (!plan.packed) take(s.key_block, kKeyBlock * p.D);
  if (!plan.packed) take(s.value_block, kKeyBlock * plan.value_stride);
  return bytes;
}

template Plan make_plan(const Problem<float>&, const Results<float>&, const Geometry&);
template Plan make_plan(const Problem<double>&, const Results<double>&, const Geometry&);
template Partial<float> partial_at(const Plan&, const Geometry&, float*);
template Partial<double> partial_at(const Plan&, const Geometry&, double*);
template std::size_t lay_out(const Plan&, const Problem<float>&, const Geometry&, std::byte*,
                             Scratch<float>&);
template std::size_t lay_out(const Plan&, const Problem<double>&, const Geometry&, std::byte*,
                             Scratch<double>&);

}  // namespace attn::kernel
