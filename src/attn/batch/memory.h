// Memory that items at work share: each waits until what it needs is free.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <set>

namespace attn {

/// Has the C library give large blocks back to the system as they are freed, whichever thread had
/// them; otherwise what one item has freed could not be counted on for another. To be called before
/// there are threads.
void give_freed_memory_back();

class Memory {
 public:
  explicit Memory(std::size_t most)
      : most_(most), least_(std::min(kSmallJob, most / 256)), free_(most) {}
  std::size_t most() const { return most_; }

  /// The one who waits is not wanted any more.
  struct GivenUp {};

  /// Some of it, given back at the end of its life. Who asks for more than there is at all gets
  /// all.
  ///
  /// To wait for more while one holds some would be to wait for each other. So only what is held by
  /// nobody else is waited for, in the order of asking, and who cannot grow at once has to give
  /// back what it has, and to ask for all that it needs.
  class Share {
   public:
    /// Waits for `bytes`. Throws GivenUp once `given_up` holds.
    Share(Memory& memory, std::size_t bytes, const std::function<bool()>& given_up);
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share();
    bool grow_to(std::size_t bytes);  ///< whether that is free now; a smaller share stays as it is

   private:
    Memory& memory_;
    std::size_t bytes_;
  };

 private:
  static constexpr std::size_t kSmallJob = std::size_t{1} << 18;
  bool take(std::size_t bytes);  ///< if they are free

  const std::size_t most_;
  const std::size_t least_;  ///< of a share, so that those of small jobs need not grow
  // What all workers change all the time, apart from what they only read.
  alignas(64) std::atomic<std::size_t> free_;
  alignas(64) std::atomic<std::size_t> waiters_ = 0;
  std::mutex mutex_;  ///< of the rest, which only those who have to wait look at
  std::condition_variable freed_;
  std::size_t tickets_ = 0;
  std::set<std::size_t> waiting_;  ///< tickets of those who wait, the first to be served first
};

}  // namespace attn
