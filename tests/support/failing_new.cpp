#include "support/failing_new.h"

#include <cstdlib>
#include <new>

#include "attn/base/error.h"

namespace {

thread_local std::size_t left = 0;  // allocations until one fails; 0: none fails
thread_local bool failed = false;

void* allocate(std::size_t size) noexcept {
  if (left > 0 && --left == 0) {
    failed = true;
    return nullptr;
  }
  return std::malloc(size == 0 ? 1 : size);
}

void* allocate_or_throw(std::size_t size) {
  if (void* memory = allocate(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// All forms are replaced together, because sanitizers check that new is matched by delete and
// malloc by free.
void* operator new(std::size_t size) { return allocate_or_throw(size); }
void* operator new[](std::size_t size) { return allocate_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

std::size_t fail_each_allocation(const std::function<void()>& act,
                                 const std::function<void(bool)>& after) {
  for (std::size_t nth = 1;; ++nth) {
    bool done = false;
    failed = false;
    left = nth;
    try {
      act();
      done = true;
    } catch (const std::bad_alloc&) {
    } catch (const attn::Error&) {
    } catch (...) {
      left = 0;
      throw;
    }
    left = 0;
    after(done);
    if (!failed) return nth - 1;
  }
}
