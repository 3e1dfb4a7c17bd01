#include "attn/kernel/attend.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/kernel/kernels.h"
#include "attn/kernel/plan.h"

namespace attn::kernel {
namespace {

constexpr double kWorkOfOneWorker = 8e6;  // below it, waking another takes longer than helping

constexpr std::size_t kTasksOfWorker = 8;  // to be shared out evenly

/// One call of attend(): the problem, its plan, and where things stand in memory. What the caller
/// writes here comes to another processor a line at a time, which takes long: so it is little, and
/// workers lay out what is their own.
template <class T>
class alignas(64) Call {
 public:
  Call(const Problem<T>& problem, const Results<T>& results, ThreadPool& pool, Isa isa)
      : p_(problem),
        results_(results),
        pool_(pool),
        kernels_(kernels<T>(isa)),
        plan_(make_plan(problem, results, kernels_.geometry)),
        workers_(static_cast<std::size_t>(
            std::clamp(plan_.work / kWorkOfOneWorker, 1.0, static_cast<double>(pool.threads())))) {}

  void all() {
    if (takes_segments_whole()) return whole_segments();
    for (std::size_t pair = 0; pair < plan_.pairs; pair += plan_.wave) {
      const std::size_t count = std::min(plan_.wave, plan_.pairs - pair);
      if (plan_.split) {
        split_wave(pair, count);
      } else {
        if (plan_.packed) pack_wave(pair, count);
        rows_wave(pair, count);
      }
    }
  }

 private:
  KeyValues<T> unpacked(std::size_t pair) const {
    return {matrix_of(p_.k, pair / p_.G, pair % p_.G), matrix_of(p_.v, pair / p_.G, pair % p_.G)};
  }

  RowBlock<T> block(std::size_t first, std::size_t rows, const KeyValues<T>& kv,
                    const Scratch<T>& scratch) const {
    return {.problem = p_, .first = first, .rows = rows, .kv = kv, .scratch = scratch};
  }

  Scratch<T> scratch_of(std::size_t worker) const {
    Scratch<T> scratch;
    lay_out(plan_, p_, kernels_.geometry, pool_.scratch(worker).reserve(plan_.scratch_bytes),
            scratch);
    return scratch;
  }

  /// Whether whole segments are shared out, and each worker packs the keys and values that its own
  /// need: these then stay in one processor's caches, and nobody waits in between. It takes
  /// segments enough to be shared out evenly.
  bool takes_segments_whole() const {
    constexpr std::size_t kMostBytes = 2304u << 10;  // of more, packing is a small part
    const std::size_t bytes = (plan_.packed_keys + plan_.packed_values) * sizeof(T);
    const std::size_t segments = plan_.pairs * plan_.segments_per_pair();
    return plan_.packed && !plan_.rows_first && bytes <= kMostBytes &&
           (segments % workers_ == 0 || segments >= 4 * workers_);
  }

  /// The pair that a worker has packed, in a line of its own.
  struct alignas(64) PackedPair {
    std::size_t number = std::numeric_limits<std::size_t>::max();
  };

  void whole_segments() {
    reserve_packed(workers_);
    std::vector<PackedPair> packed(workers_);
    pool_.run(
        plan_.pairs * plan_.segments_per_pair(), workers_,
        [&](std::size_t segment, std::size_t worker) {
          const Scratch<T> scratch = scratch_of(worker);
          const std::size_t pair = segment / plan_.segments_per_pair();
          KeyValues<T> kv = unpacked(pair);
          if (std::exchange(packed[worker].number, pair) != pair)
            for (std::size_t number = 0; number < plan_.key_blocks; ++number)
              pack_block(kv, worker, number, scratch.widened);
          point_to_packed(kv, worker);
          for (std::size_t row = 0; row < plan_.segment_rows; row += plan_.block_rows)
            whole_rows(block(segment * plan_.segment_rows + row,
                             std::min(plan_.block_rows, plan_.segment_rows - row), kv, scratch));
        },
        ThreadPool::Order::shares);
  }

  /// Room for `count` packed pairs, each in lines of its own.
  void reserve_packed(std::size_t count) {
    constexpr std::size_t kLine = 64;
    values_at_ = round_up(plan_.packed_keys * sizeof(T), kLine);
    kinds_at_ = values_at_ + round_up(plan_.packed_values * sizeof(T), kLine);
    packed_bytes_ = kinds_at_ + round_up(plan_.key_blocks * sizeof(ValueKind), kLine);
    packed_ = pool_.shared().reserve(count * packed_bytes_);
  }

  /// Where the `place`-th of the packed pairs stands.
  struct Packed {
    T *keys, *values;
    ValueKind* kinds;
  };
  Packed packed(std::size_t place) const {
    std::byte* memory = packed_ + place * packed_bytes_;
    return {reinterpret_cast<T*>(memory), reinterpret_cast<T*>(memory + values_at_),
            reinterpret_cast<ValueKind*>(memory + kinds_at_)};
  }
  void point_to_packed(KeyValues<T>& kv, std::size_t place) const {
    const Packed to = packed(place);
    kv.keys = to.keys, kv.values = to.values, kv.kinds = to.kinds;
  }

  /// Packs pairs [first, first + count), a task for each block of keys.
  void pack_wave(std::size_t first, std::size_t count) {
    reserve_packed(count);
    pool_.run(count * plan_.key_blocks, workers_, [&](std::size_t task, std::size_t worker) {
      const std::size_t pair = task / plan_.key_blocks, number = task % plan_.key_blocks;
      pack_block(unpacked(first + pair), pair, number, scratch_of(worker).widened);
    });
  }

  /// Packs key block `number` into the `place`-th of the packed pairs.
  void pack_block(const KeyValues<T>& kv, std::size_t place, std::size_t number, T* widened) const {
    const std::size_t panel = kernels_.geometry.panel;
    const std::size_t from = number * kKeyBlock, to = std::min(p_.S, from + kKeyBlock);
    const Packed into = packed(place);
    for (std::size_t key = from; key < to; key += panel)
      kernels_.pack_keys(kv.k, key, std::min(panel, to - key), p_.D, widened,
                         into.keys + key * p_.D);
    into.kinds[number] =
        kernels_.pack_values(kv.v, from, to - from, p_.Dv, widened, into.values, p_.S, from);
  }

  /// All rows of pairs [first, first + count). The last rows of each segment come first: where keys
  /// are hidden causally they take longest, and are not left to one thread at the end. Where
  /// segments share much of masks, a task is the same rows of several.
  void rows_wave(std::size_t first, std::size_t count) {
    const std::size_t segments = count * plan_.segments_per_pair();
    const std::size_t blocks = plan_.tasks_per_segment();
    if (!plan_.rows_first)
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
    const std::size_t pair = segment / plan_.segments_per_pair();
    const std::size_t row = number * plan_.task_rows;
    KeyValues<T> kv = unpacked(first + pair);
    if (plan_.packed) point_to_packed(kv, pair);
    whole_rows(block(first * plan_.pair_rows + segment * plan_.segment_rows + row,
                     std::min(plan_.task_rows, plan_.segment_rows - row), kv, scratch_of(worker)));
  }

  void whole_rows(RowBlock<T> rows) const {
    if (plan_.key_blocks == 1 && !plan_.strip) return kernels_.single(rows, results_);
    kernels_.begin(rows, results_);
    if (plan_.strip)
      kernels_.strip(rows);
    else
      kernels_.stream(rows, 0, plan_.key_blocks);
    kernels_.finish(rows, results_);
    if (plan_.strip) hand_on(rows);
  }

  /// Its finished rows, to the sink.
  void hand_on(const RowBlock<T>& rows) const {
    const Scratch<T>& s = rows.scratch;
    results_.sink({.first = rows.first,
                   .count = rows.rows,
                   .scores = results_.scores ? s.raw : nullptr,
                   .weights = results_.weights ? s.strip : nullptr,
                   .scaled = results_.scaled ? s.scaled : nullptr,
                   .masked = results_.masked ? s.masked : nullptr,
                   .stride = plan_.strip_stride});
  }

  /// Few rows: each pair and block of keys by itself, then each pair's merged. A task is several
  /// blocks, of which each is asked for while the one before is worked on.
  void split_wave(std::size_t first, std::size_t count) {
    const std::size_t blocks = plan_.key_blocks, rows = plan_.pair_rows, parts = count * blocks;
    const std::size_t tasks = std::min(parts, kTasksOfWorker * workers_);
    T* partials =
        reinterpret_cast<T*>(pool_.shared().reserve(parts * plan_.partial_size * sizeof(T)));
    const auto partial = [&](std::size_t part) {
      return partial_at(plan_, kernels_.geometry, partials + part * plan_.partial_size);
    };
    pool_.run(tasks, workers_, [&](std::size_t task, std::size_t worker) {
      for (std::size_t at = parts * task / tasks; at < parts * (task + 1) / tasks; ++at) {
        const std::size_t pair = first + at / blocks, number = at % blocks;
        RowBlock<T> part = block(pair * rows, rows, unpacked(pair), scratch_of(worker));
        part.scratch.partial = partial(at);
        part.has_sinks = false;
        kernels_.begin(part, results_);
        kernels_.stream(part, number, number + 1);
      }
    });
    pool_.run(count, workers_, [&](std::size_t task, std::size_t worker) {
      const std::size_t pair = first + task;
      RowBlock<T> whole = block(pair * rows, rows, unpacked(pair), scratch_of(worker));
      kernels_.begin(whole, results_);
      for (std::size_t number = 0; number < blocks; ++number)
        kernels_.merge(whole, partial(task * blocks + number));
      kernels_.finish(whole, results_);
    });
  }

  const Problem<T>& p_;
  const Results<T>& results_;
  ThreadPool& pool_;
  const Kernels<T>& kernels_;
  const Plan plan_;
  const std::size_t workers_;

  // The pairs of a wave, or each worker's own, packed: keys first, then values and their kinds.
  std::byte* packed_ = nullptr;
  std::size_t values_at_ = 0, kinds_at_ = 0, packed_bytes_ = 0;
};

}  // namespace

template <class T>
void attend(const Problem<T>& problem, const Results<T>& results, ThreadPool& pool, Isa isa) {
  if (problem.G == 0 ? problem.H != 0 : problem.H % problem.G != 0)
    throw Error(ErrorKind::internal, "attend: expected heads in groups, found " +
                                         std::to_string(problem.H) + " over " +
                                         std::to_string(problem.G));
  if (problem.B * problem.H * problem.L == 0) return;
  Call<T>(problem, results, pool, isa).all();
}

template void attend(const Problem<float>&, const Results<float>&, ThreadPool&, Isa);
template void attend(const Problem<double>&, const Results<double>&, ThreadPool&, Isa);

}  // namespace attn::kernel
