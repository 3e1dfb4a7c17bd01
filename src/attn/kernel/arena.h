// A buffer that is kept between calls, so that its pages are faulted in only once.
#pragma once

#include <cstddef>
#include <memory>

namespace attn::kernel {

class Arena {
 public:
  /// Returns at least `bytes` of memory, aligned to cache lines, with undefined contents.
  /// Invalidates the result of earlier calls. Throws std::bad_alloc.
  std::byte* reserve(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace attn::kernel
