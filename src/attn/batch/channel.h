// Memory that the main process of a batch shares with one worker process: what the worker is doing,
// and the bytes of its replies, which survive its death.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attn {

/// The job that a worker runs, and who reports it. All operations are atomic.
class CurrentJob {
 public:
  // For the worker.
  void begin(std::size_t sequence);
  /// True if the worker may complete the job, false if its time limit has expired.
  bool acquire();
  /// Returns whether the items that wait for this worker were withdrawn.
  bool end();

  // For the main process.
  std::optional<std::size_t> sequence() const;  ///< nullopt if no job is running
  /// Seconds for which the job has been running; 0 if it is not.
  double seconds(std::size_t sequence) const;
  /// Marks the job as over its time limit; false if it is not running or has been acquired.
  bool expire(std::size_t sequence);
  /// Withdraws the items that wait for the worker; false if it is not running this job.
  bool withdraw_others(std::size_t sequence);

 private:
  static constexpr std::uint64_t kAcquired = 1, kExpired = 2, kWithdrawn = 4, kFlags = 8;
  static std::uint64_t state_of(std::size_t sequence) { return (sequence + 1) * kFlags; }
  bool is_running(std::size_t sequence, std::uint64_t state) const {
    return state / kFlags * kFlags == state_of(sequence);
  }
  bool set(std::size_t sequence, std::uint64_t flag, std::uint64_t unless);

  std::atomic<std::uint64_t> state_ = 0;  ///< state_of(sequence) + flags; 0: no job
  std::atomic<std::int64_t> start_ = 0;   ///< nanoseconds of the steady clock
};

/// A pipe in shared memory, from the worker to the main process, without system calls.
class ReplyBytes {
 public:
  /// Copies the first bytes of `bytes`, as many as there is space for, and returns their number.
  std::size_t put(std::string_view bytes);
  bool is_half_full() const;

  /// Appends all bytes that are there. Returns false if the counts are impossible, because the
  /// worker has overwritten them.
  bool take(std::string& out);
  bool is_empty() const { return put_ == taken_; }

 private:
  static constexpr std::uint64_t kSize = 1 << 18;
  alignas(64) std::atomic<std::uint64_t> put_ = 0;  ///< bytes so far
  alignas(64) std::atomic<std::uint64_t> taken_ = 0;
  std::array<char, kSize> bytes_;
};

struct Channel {
  alignas(64) CurrentJob job;
  alignas(64) std::atomic<bool> is_awaited = false;  ///< the main process sleeps
  ReplyBytes replies;
};

/// A new channel in memory that processes forked later share. Throws std::bad_alloc.
Channel* make_channel();
void free_channel(Channel* channel);

}  // namespace attn
