#include "attn/kernel/attend.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/kernel/kernels.h"
#include "attn/kernel/schedule.h"

namespace attn::kernel {
namespace {

std::atomic<std::atomic<std::size_t>*> g_computed_rows = nullptr;

void add_computed_rows(std::size_t count) {
  if (auto* const rows = g_computed_rows.load(std::memory_order_relaxed)) *rows += count;
}

constexpr std::size_t kTasksOfWorker = 8;  // to balance the load

/// One call of attend(). Other processors fetch the cache lines that the caller writes here one at
/// a time, which is slow. The object is therefore small, and workers initialise their own scratch
/// memory.
template <class T>
class alignas(64) Call {
 public:
  Call(const AttentionProblem<T>& problem, const Results<T>& results, ThreadPool& pool, Isa isa)
      : p_(problem),
        results_(results),
        pool_(pool),
        kernels_(kernels<T>(isa)),
        schedule_(make_schedule(problem, results, kernels_.geometry)),
        workers_(static_cast<std::size_t>(std::clamp(schedule_.work / kWorkOfOneWorker, 1.0,
                                                     static_cast<double>(pool.threads())))) {}

  void all() {
    if (runs_whole_segments()) return whole_segments();
    for (std::size_t pair = 0; pair < schedule_.pairs; pair += schedule_.chunk_pairs) {
      const std::size_t count = std::min(schedule_.chunk_pairs, schedule_.pairs - pair);
      if (schedule_.split) {
        split_chunk(pair, count);
      } else {
        if (schedule_.packed) pack_chunk(pair, count);
        compute_chunk(pair, count);
      }
    }
  }

 private:
  KeyValues<T> unpacked(std::size_t pair) const {
    return {matrix_of(p_.k, pair / p_.G, pair % p_.G), matrix_of(p_.v, pair / p_.G, pair % p_.G),
            schedule_.key_factors, schedule_.value_factors};
  }

  QueryBlock<T> block(std::size_t first, std::size_t rows, const KeyValues<T>& kv,
                      const Scratch<T>& scratch) const {
    return {.problem = p_, .first = first, .rows = rows, .kv = kv, .scratch = scratch};
  }

  Scratch<T> scratch_of(std::size_t worker) const {
    Scratch<T> scratch;
    lay_out_scratch(schedule_, p_, kernels_.geometry,
                    pool_.scratch(worker).reserve(schedule_.scratch_bytes), scratch);
    return scratch;
  }

  /// Whether tasks are whole segments. Each worker then packs keys and values itself, so they stay
  /// in the caches of one processor and no worker waits. Requires enough segments to balance the
  /// load.
  bool runs_whole_segments() const {
    constexpr std::size_t kMaxBytes = 2304u
                                      << 10;  // beyond this, packing is a small part of the work
    const std::size_t bytes = (schedule_.packed_keys + schedule_.packed_values) * sizeof(T);
    const std::size_t segments = schedule_.pairs * schedule_.segments_per_pair();
    return schedule_.packed && !schedule_.rows_first && bytes <= kMaxBytes &&
           (segments % workers_ == 0 || segments >= 4 * workers_);
  }

  /// The pair that a worker has packed, in its own cache line.
  struct alignas(64) PackedPair {
    std::size_t number = std::numeric_limits<std::size_t>::max();
  };

  void whole_segments() {
    reserve_packed(workers_);
    std::vector<PackedPair> packed(workers_);
    pool_.run(
        schedule_.pairs * schedule_.segments_per_pair(), workers_,
        [&](std::size_t segment, std::size_t worker) {
          const Scratch<T> scratch = scratch_of(worker);
          const std::size_t pair = segment / schedule_.segments_per_pair();
          KeyValues<T> kv = unpacked(pair);
          if (std::exchange(packed[worker].number, pair) != pair)
            for (std::size_t number = 0; number < schedule_.key_blocks; ++number)
              pack_block(kv, worker, number, scratch.widened);
          point_to_packed(kv, worker);
          for (std::size_t row = 0; row < schedule_.segment_rows; row += schedule_.block_rows)
            whole_rows(block(segment * schedule_.segment_rows + row,
                             std::min(schedule_.block_rows, schedule_.segment_rows - row), kv,
                             scratch));
        },
        ThreadPool::Order::shares);
  }

  /// Allocates `count` packed pairs, each on its own cache lines.
  void reserve_packed(std::size_t count) {
    constexpr std::size_t kLine = 64;
    values_at_ = round_up(schedule_.packed_keys * sizeof(T), kLine);
    kinds_at_ = values_at_ + round_up(schedule_.packed_values * sizeof(T), kLine);
    packed_bytes_ = kinds_at_ + round_up(schedule_.key_blocks * sizeof(ValueKind), kLine);
    packed_ = pool_.shared().reserve(count * packed_bytes_);
  }

  /// The buffers of one packed pair.
  struct Packed {
    T *keys, *values;
    ValueKind* kinds;
  };
  Packed packed(std::size_t slot) const {
    std::byte* memory = packed_ + slot * packed_bytes_;
    return {reinterpret_cast<T*>(memory), reinterpret_cast<T*>(memory + values_at_),
            reinterpret_cast<ValueKind*>(memory + kinds_at_)};
  }
  void point_to_packed(KeyValues<T>& kv, std::size_t slot) const {
    const Packed to = packed(slot);
    kv.keys = to.keys, kv.values = to.values, kv.kinds = to.kinds;
  }

  /// Packs pairs [first, first + count). A task is a key block.
  void pack_chunk(std::size_t first, std::size_t count) {
    reserve_packed(count);
    pool_.run(count * schedule_.key_blocks, workers_, [&](std::size_t task, std::size_t worker) {
      const std::size_t pair = task / schedule_.key_blocks, number = task % schedule_.key_blocks;
      pack_block(unpacked(first + pair), pair, number, scratch_of(worker).widened);
    });
  }

  /// Packs key block `number` into packed pair `slot`.
  void pack_block(const KeyValues<T>& kv, std::size_t slot, std::size_t number, T* widened) const {
    const std::size_t panel = kernels_.geometry.panel;
    const std::size_t from = number * kKeyBlock, to = std::min(p_.S, from + kKeyBlock);
    const std::size_t depth = depth_of(schedule_.key_factors, p_.D);
    const Packed into = packed(slot);
    for (std::size_t key = from; key < to; key += panel)
      kernels_.pack_keys(kv.k, schedule_.key_factors, key, std::min(panel, to - key), p_.S, p_.D,
                         widened, into.keys + key * depth);
    into.kinds[number] = kernels_.pack_values(kv.v, schedule_.value_factors, from, to - from, p_.S,
                                              p_.Dv, widened, into.values);
  }

  /// Computes all rows of pairs [first, first + count). The last rows of each segment come first:
  /// with causal masks they take longest and should not be left to one thread at the end. If
  /// segments share large masks, a task is the same rows of several.
  void compute_chunk(std::size_t first, std::size_t count) {
    const std::size_t segments = count * schedule_.segments_per_pair();
    const std::size_t blocks = schedule_.tasks_per_segment();
    if (!schedule_.rows_first)
      return pool_.run(segments * blocks, workers_, [&](std::size_t task, std::size_t worker) {
        rows_of_segment(first, task / blocks, blocks - 1 - task % blocks, worker);
      });
    const std::size_t parts = std::min(segments, (kTasksOfWorker * workers_ + blocks - 1) / blocks);
    pool_.run(blocks * parts, workers_, [&](std::size_t task, std::size_t worker) {
      const std::size_t part = task % parts, number = blocks - 1 - task / parts;
      for (std::size_t at = segments * part / parts; at < segments * (part + 1) / parts; ++at)
        rows_of_segment(first, at, number, worker);
    });
  }

  /// Block `number` of the rows of a segment, counted from pair `first` on.
  void rows_of_segment(std::size_t first, std::size_t segment, std::size_t number,
                       std::size_t worker) const {
    const std::size_t pair = segment / schedule_.segments_per_pair();
    const std::size_t row = number * schedule_.task_rows;
    KeyValues<T> kv = unpacked(first + pair);
    if (schedule_.packed) point_to_packed(kv, pair);
    whole_rows(block(first * schedule_.pair_rows + segment * schedule_.segment_rows + row,
                     std::min(schedule_.task_rows, schedule_.segment_rows - row), kv,
                     scratch_of(worker)));
  }

  void whole_rows(QueryBlock<T> rows) const {
    compute_rows(rows);
    add_computed_rows(rows.rows);
  }

  void compute_rows(QueryBlock<T>& rows) const {
    if (schedule_.key_blocks == 1 && !schedule_.full_rows)
      return kernels_.single_block(rows, results_);
    kernels_.begin(rows, results_);
    if (schedule_.full_rows)
      kernels_.full_rows(rows);
    else
      kernels_.stream(rows, 0, schedule_.key_blocks);
    kernels_.finish(rows, results_);
    if (schedule_.full_rows && results_.on_rows) deliver(rows);
  }

  /// Passes finished rows to the caller.
  void deliver(const QueryBlock<T>& rows) const {
    const Scratch<T>& s = rows.scratch;
    results_.on_rows({.first = rows.first,
                      .count = rows.rows,
                      .scores = results_.scores ? s.raw : nullptr,
                      .weights = results_.weights ? s.scores : nullptr,
                      .scaled = results_.scaled ? s.scaled : nullptr,
                      .masked = results_.masked ? s.masked : nullptr,
                      .dropped = results_.dropped ? s.dropped : nullptr,
                      .stride = schedule_.score_stride});
  }

  /// For few rows: computes the key blocks of each pair independently, then merges them. A task is
  /// several consecutive key blocks, so that each is prefetched while the previous one is computed.
  void split_chunk(std::size_t first, std::size_t count) {
    const std::size_t blocks = schedule_.key_blocks, rows = schedule_.pair_rows,
                      parts = count * blocks;
    const std::size_t own = first_part(parts, 0), own_parts = first_part(parts, 1) - own;
    const std::size_t tasks = std::min(own_parts, kTasksOfWorker * workers_);
    T* states =
        reinterpret_cast<T*>(pool_.shared().reserve(parts * schedule_.state_size * sizeof(T)));
    const auto state = [&](std::size_t part) {
      return state_at(schedule_, kernels_.geometry, states + part * schedule_.state_size);
    };
    pool_.run(tasks, workers_, [&](std::size_t task, std::size_t worker) {
      const std::size_t end = own + own_parts * (task + 1) / tasks;
      for (std::size_t at = own + own_parts * task / tasks; at < end; ++at) {
        const std::size_t pair = first + at / blocks, number = at % blocks;
        QueryBlock<T> part = block(pair * rows, rows, unpacked(pair), scratch_of(worker));
        part.scratch.state = state(at);
        part.has_sinks = false;
        kernels_.begin(part, results_);
        kernels_.stream(part, number, number + 1);
      }
    });
    if (results_.key_part != nullptr) exchange(states, parts);
    pool_.run(count, workers_, [&](std::size_t task, std::size_t worker) {
      const std::size_t pair = first + task;
      QueryBlock<T> whole = block(pair * rows, rows, unpacked(pair), scratch_of(worker));
      kernels_.begin(whole, results_);
      for (std::size_t number = 0; number < blocks; ++number)
        kernels_.merge(whole, state(task * blocks + number));
      kernels_.finish(whole, results_);
      add_computed_rows(rows);
    });
  }

  /// The first part that this process computes; with `later` = 1, that of the next process.
  std::size_t first_part(std::size_t parts, std::size_t later) const {
    if (results_.key_part == nullptr) return parts * later;
    return parts * (results_.key_part->index + later) / results_.key_part->count;
  }

  /// Completes the states with those that the other processes computed.
  void exchange(T* states, std::size_t parts) const {
    const std::size_t size = results_.key_part->count, bytes = schedule_.state_size * sizeof(T);
    std::vector<std::size_t> ends;
    for (std::size_t i = 1; i <= size; ++i) ends.push_back(parts * i / size * bytes);
    results_.key_part->exchange({reinterpret_cast<std::byte*>(states), parts * bytes}, ends);
  }

  const AttentionProblem<T>& p_;
  const Results<T>& results_;
  ThreadPool& pool_;
  const Kernels<T>& kernels_;
  const Schedule schedule_;
  const std::size_t workers_;

  // Packed pairs, of the current chunk or one of each worker: keys, values, kinds of the values.
  std::byte* packed_ = nullptr;
  std::size_t values_at_ = 0, kinds_at_ = 0, packed_bytes_ = 0;
};

}  // namespace

void count_rows(std::atomic<std::size_t>* rows) { g_computed_rows = rows; }

bool can_split_keys(std::size_t B, std::size_t H, std::size_t G, std::size_t L, std::size_t S) {
  return B * H * L > 0 && H / G * L <= kMaxRows && key_blocks(S) > 1;
}

template <class T>
void attend(const AttentionProblem<T>& problem, const Results<T>& results, ThreadPool& pool,
            Isa isa) {
  if (problem.G == 0 ? problem.H != 0 : problem.H % problem.G != 0)
    throw Error(ErrorKind::internal, "attend: expected heads in groups, found " +
                                         std::to_string(problem.H) + " over " +
                                         std::to_string(problem.G));
  if (problem.B * problem.H * problem.L == 0) return;
  Call<T>(problem, results, pool, isa).all();
}

template void attend(const AttentionProblem<float>&, const Results<float>&, ThreadPool&, Isa);
template void attend(const AttentionProblem<double>&, const Results<double>&, ThreadPool&, Isa);

}  // namespace attn::kernel
