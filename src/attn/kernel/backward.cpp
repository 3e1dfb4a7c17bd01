#include "attn/kernel/backward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attn/base/error.h"
#include "attn/kernel/kernels.h"
#include "attn/kernel/schedule.h"

namespace attn::kernel {
namespace {

/// Divides `memory` among a worker's buffers and returns the bytes needed. With nullptr it only
/// counts.
template <class T>
std::size_t lay_out(const AttentionProblem<T>& p, const Geometry& geometry, std::byte* memory,
                    BackwardScratch<T>& s) {
  constexpr std::size_t kLine = 64;
  std::size_t bytes = 0;
  const auto take = [&]<class X>(X*& pointer, std::size_t count) {
    if (memory) pointer = reinterpret_cast<X*>(memory + bytes);
    bytes = round_up(bytes + count * sizeof(X), kLine);
  };
  const std::size_t keys = geometry.backward_keys;
  s.stride = keys + geometry.lanes;  // not a power of two, which maps to few cache sets
  s.depth = round_up(p.D, geometry.lanes);
  s.value_depth = round_up(p.Dv, geometry.lanes);
  take(s.row, kBackwardRows);
  take(s.reach, kBackwardRows);
  take(s.query, kBackwardRows * p.D);
  take(s.grad, kBackwardRows * p.Dv);
  take(s.panels, kBackwardRows * std::max(s.depth, s.value_depth));
  take(s.weights, kBackwardRows * s.stride);
  take(s.slopes, kBackwardRows * s.stride);
  if (p.softcap > 0)
    for (T** each : {&s.raw, &s.scaled, &s.masked}) take(*each, kBackwardRows * s.stride);
  take(s.running_max, kBackwardRows * geometry.lanes);
  take(s.widened, geometry.panel * std::max(p.D, p.Dv));
  take(s.key_panels, keys * p.D);
  take(s.value_panels, keys * p.Dv);
  take(s.key_factor, keys * s.depth);
  take(s.grad_query, kBackwardRows * s.depth);
  take(s.grad_key, keys * s.depth);
  take(s.grad_value, keys * s.value_depth);
  return bytes;
}

/// The scratch of a worker. From 512 KiB on it is in huge pages: small ones are spread unevenly
/// over the sets of a level 2 cache.
template <class T>
std::size_t scratch_bytes(const AttentionProblem<T>& p, const Geometry& geometry) {
  BackwardScratch<T> scratch;
  const std::size_t bytes = lay_out(p, geometry, nullptr, scratch);
  return bytes < Arena::kHugePage / 4 ? bytes : round_up(bytes, Arena::kHugePage);
}

template <class T>
bool is_aligned(const T* at) {
  return reinterpret_cast<std::uintptr_t>(at) % 64 == 0;
}

/// One call of attend_backward(). A task is a block of keys of a pair of batch item and key/value
/// head, whose gradients it sums over all queries. The tasks of a pair also add to the gradients of
/// the same queries, in the order of the keys: each waits until the previous one has added its
/// part. As tasks start in this order, some task never waits. Queries are visited from the last to
/// the first, so that with causal masks no task has to wait until another has passed the queries
/// that it does not need.
template <class T>
class BackwardCall {
 public:
  BackwardCall(const BackwardProblem<T>& in, const BackwardResults<T>& out, ThreadPool& pool,
               Isa isa)
      : in_(in),
        p_(in.problem),
        out_(out),
        pool_(pool),
        kernels_(kernels<T>(isa)),
        row_blocks_((p_.L + kBackwardRows - 1) / kBackwardRows),
        keys_(kernels_.geometry.backward_keys),
        key_blocks_((p_.S + keys_ - 1) / keys_),
        turns_(p_.B * p_.H * row_blocks_) {}

  void all() {
    find_visits();
    if (out_.sinks) sum_sinks();
    const std::size_t pairs = p_.B * p_.G, workers = choose_workers();
    for (std::size_t worker = 0; worker < workers;
         ++worker)  // a task that throws would be waited for
      pool_.scratch(worker).reserve(scratch_bytes(p_, kernels_.geometry));
    // Pairs that share a bias take turns; otherwise they are computed in parallel.
    const std::size_t together = shares_biases() ? 1 : pairs;
    for (std::size_t first = 0; first < pairs; first += together)
      pool_.run(key_blocks_ * together, workers, [&](std::size_t task, std::size_t worker) {
        compute(first + task % together, task / together, worker);
      });
  }

 private:
  /// The key blocks that queries of a block may see.
  struct Visits {
    std::size_t first = 0, last = 0;
  };

  void find_visits() {
    const std::size_t batches = p_.key_ranges && p_.key_ranges_batch != 0 ? p_.B : 1;
    for (std::size_t b = 0; b < batches; ++b)
      for (std::size_t i = 0; i < row_blocks_; ++i) visits_.push_back(visits_of(b, i));
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const std::size_t b = i / row_blocks_ / p_.H, row = i % row_blocks_ * kBackwardRows;
      const Visits visits = this->visits(b, i % row_blocks_);
      turns_[i].store(visits.first, std::memory_order_relaxed);
      if (out_.q && visits.first == visits.last)
        std::fill_n(out_.q + (i / row_blocks_ * p_.L + row) * p_.D,
                    std::min(kBackwardRows, p_.L - row) * p_.D, T(0));
    }
  }

  Visits visits_of(std::size_t b, std::size_t block) const {
    if (!p_.key_ranges) return {0, key_blocks_};
    const KeyRange* ranges = p_.key_ranges + static_cast<std::int64_t>(b) * p_.key_ranges_batch;
    Span span;
    const std::size_t end = std::min(p_.L, (block + 1) * kBackwardRows);
    for (std::size_t l = block * kBackwardRows; l < end; ++l) {
      if (ranges[l].begin >= ranges[l].end) continue;
      span.first = std::min(span.first, ranges[l].begin);
      span.last = std::max(span.last, ranges[l].end);
    }
    if (span.empty()) return {};
    return {static_cast<std::size_t>(span.first) / keys_,
            (static_cast<std::size_t>(span.last) + keys_ - 1) / keys_};
  }

  Visits visits(std::size_t b, std::size_t block) const {
    return visits_[(visits_.size() > row_blocks_ ? b * row_blocks_ : 0) + block];
  }

  /// Fixed order, in double: the sum has no other parallel axis than the few heads.
  void sum_sinks() const {
    std::fill_n(out_.sinks, p_.H, T(0));
    for (std::size_t h = 0; h < p_.H; ++h) {
      double sum = 0;
      for (std::size_t b = 0; b < p_.B; ++b)
        for (std::size_t l = 0; l < p_.L; ++l) {
          const std::size_t i = (b * p_.H + h) * p_.L + l;
          const bool padding =
              p_.key_ranges && p_.key_ranges[static_cast<std::int64_t>(b) * p_.key_ranges_batch +
                                             static_cast<std::int64_t>(l)]
                                   .padding;
          const double weight = std::exp(double(p_.sinks[h]) - double(in_.logsumexp[i]));
          if (padding || !(weight != 0) || std::isinf(p_.sinks[h])) continue;
          const double extra = in_.grad_logsumexp ? double(in_.grad_logsumexp[i]) : 0;
          sum += weight * (extra - double(in_.delta[i]));
        }
      out_.sinks[h] = static_cast<T>(sum);
    }
  }

  std::size_t choose_workers() const {
    for (std::size_t m = 0; m < out_.biases.size(); ++m)  // key blocks add to the same elements
      if (out_.biases[m] && p_.biases[m].strides.column == 0) return 1;
    const double work = 4.0 * static_cast<double>(p_.B * p_.H * p_.L) * static_cast<double>(p_.S) *
                        static_cast<double>(p_.D + p_.Dv);
    return static_cast<std::size_t>(
        std::clamp(work / kWorkOfOneWorker, 1.0, static_cast<double>(pool_.threads())));
  }

  /// Whether pairs add to the same gradients of a bias.
  bool shares_biases() const {
    for (std::size_t m = 0; m < out_.biases.size(); ++m) {
      const Strides& strides = p_.biases[m].strides;
      if (out_.biases[m] && ((p_.B > 1 && strides.batch == 0) || (p_.H > 1 && strides.head == 0)))
        return true;
    }
    return false;
  }

  void compute(std::size_t pair, std::size_t number, std::size_t worker) {
    BackwardScratch<T> scratch;
    lay_out(p_, kernels_.geometry,
            pool_.scratch(worker).reserve(scratch_bytes(p_, kernels_.geometry)), scratch);
    const std::size_t first = number * keys_, count = std::min(keys_, p_.S - first);
    const std::size_t row = pair * p_.S + first;
    T* const grad_key = out_.k ? out_.k + row * p_.D : nullptr;
    T* const grad_value = out_.v ? out_.v + row * p_.Dv : nullptr;
    // Gradients of whole vectors are summed where they are written.
    if (grad_key && scratch.depth == p_.D && is_aligned(grad_key)) scratch.grad_key = grad_key;
    const bool values_in_place =
        grad_value && scratch.value_depth == p_.Dv && is_aligned(grad_value);
    if (values_in_place) scratch.grad_value = grad_value;
    BackwardKeys<T> keys{in_, out_, pair / p_.G, pair % p_.G, first, count, scratch};
    kernels_.backward_begin(keys);
    const std::size_t heads = p_.H / p_.G;
    for (std::size_t head = keys.g * heads; head < (keys.g + 1) * heads; ++head)
      for (std::size_t block = row_blocks_; block-- > 0;) {
        const Visits here = visits(keys.b, block);
        if (number < here.first || number >= here.last) continue;
        const std::size_t bh = keys.b * p_.H + head, query = block * kBackwardRows;
        const std::size_t rows = std::min(kBackwardRows, p_.L - query);
        if (!out_.q) {
          kernels_.backward_rows(keys, bh * p_.L + query, rows);
          continue;
        }
        std::atomic<std::size_t>& turn = turns_[bh * row_blocks_ + block];
        T* const to = out_.q + (bh * p_.L + query) * p_.D;
        const bool adds = number != here.first;
        // If it is the turn of this block already, its part needs no memory of its own.
        const bool in_place =
            scratch.depth == p_.D && turn.load(std::memory_order_acquire) == number;
        keys.scratch.grad_query = in_place ? to : scratch.grad_query;
        keys.adds_to_queries = in_place && adds;
        kernels_.backward_rows(keys, bh * p_.L + query, rows);
        in_turn(turn, number, [&] {
          if (!in_place)
            kernels_.backward_write({scratch.grad_query, scratch.depth, rows, p_.D}, adds, to);
        });
      }
    if (grad_key)
      kernels_.backward_write({scratch.grad_key, scratch.depth, count, p_.D, p_.scale}, false,
                              grad_key);
    if (grad_value && !values_in_place)
      kernels_.backward_write({scratch.grad_value, scratch.value_depth, count, p_.Dv}, false,
                              grad_value);
  }

  /// Calls f() when it is the turn of key block `number`.
  template <class F>
  static void in_turn(std::atomic<std::size_t>& turn, std::size_t number, F f) {
    for (std::size_t now; (now = turn.load(std::memory_order_acquire)) != number;)
      turn.wait(now, std::memory_order_acquire);
    f();
    turn.store(number + 1, std::memory_order_release);
    turn.notify_all();
  }

  const BackwardProblem<T>& in_;
  const AttentionProblem<T>& p_;
  const BackwardResults<T>& out_;
  ThreadPool& pool_;
  const Kernels<T>& kernels_;
  const std::size_t row_blocks_;
  const std::size_t keys_, key_blocks_;          ///< keys of a block
  std::vector<Visits> visits_;                   ///< (B or 1, row blocks)
  std::vector<std::atomic<std::size_t>> turns_;  ///< (B, H, row blocks): the next key block
};

}  // namespace

template <class T>
void attend_backward(const BackwardProblem<T>& problem, const BackwardResults<T>& gradients,
                     ThreadPool& pool, Isa isa) {
  const AttentionProblem<T>& p = problem.problem;
  if (p.G == 0 ? p.H != 0 : p.H % p.G != 0)
    throw Error(ErrorKind::internal, "attend_backward: expected heads in groups, found " +
                                         std::to_string(p.H) + " over " + std::to_string(p.G));
  BackwardCall<T>(problem, gradients, pool, isa).all();
}

template <class T>
std::size_t backward_bytes(const AttentionProblem<T>& problem, Isa isa) {
  return Arena::memory_for(scratch_bytes(problem, kernels<T>(isa).geometry));
}

template void attend_backward(const BackwardProblem<float>&, const BackwardResults<float>&,
                              ThreadPool&, Isa);
template void attend_backward(const BackwardProblem<double>&, const BackwardResults<double>&,
                              ThreadPool&, Isa);
template std::size_t backward_bytes(const AttentionProblem<float>&, Isa);
template std::size_t backward_bytes(const AttentionProblem<double>&, Isa);

}  // namespace attn::kernel
