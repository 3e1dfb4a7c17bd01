// Memory that items at work share: each waits until what it needs is free.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace attn {

class Memory {
 public:
  explicit Memory(std::size_t most) : most_(most), free_(most) {}
  std::size_t most() const { return most_; }

  /// Some of it, given back at the end of its life.
  class Share {
   public:
    /// Waits for `bytes`, which are at most most().
    Share(Memory& memory, std::size_t bytes);
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share();

   private:
    Memory& memory_;
    const std::size_t bytes_;
  };

 private:
  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::size_t free_;
};

}  // namespace attn
