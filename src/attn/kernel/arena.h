// Memory that is kept between calls, so that its pages are faulted in once.
#pragma once

#include <cstddef>
#include <memory>

namespace attn::kernel {

class Arena {
 public:
  /// At least `bytes`, on a cache line's boundary, with undefined contents; what an earlier call
  /// returned is gone. Throws std::bad_alloc.
  std::byte* reserve(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace attn::kernel
