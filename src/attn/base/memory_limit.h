// The limit on the memory of the whole process, which --max-memory sets.
//
// Before memory is allocated, check_allocation() is called: by operator new of the program
// (apps/attn/operator_new.cpp) and by the few places that allocate otherwise. It compares what
// malloc has taken from the system, and what is mapped, with the limit; allocators never take less
// than what is in use. So that small allocations cost two instructions, it only looks after a
// number of bytes that depends on how much is left. (docs/decisions/0021-memory-limit.md)
#pragma once

#include <cstddef>
#include <new>

namespace attn {

/// An allocation that would exceed the limit. what() is the message, without "attn: ".
class MemoryLimitReached : public std::bad_alloc {
 public:
  explicit MemoryLimitReached(std::size_t limit) noexcept;
  const char* what() const noexcept override { return text_; }

  /// The same with "WHERE: " in front, if WHERE is not "" and there is space.
  MemoryLimitReached within(const char* where) const noexcept;

 private:
  char text_[1024];
};

/// The message for a failed allocation, without "attn: ".
const char* message_of(const std::bad_alloc& fault);

/// Limits the memory of this process to `bytes` above what is allocated now, and 2 MiB for small
/// things. Threads must be started later. Without the GNU C library, it has no effect.
///
/// A strict limit also counts mapped files and makes malloc return memory early. One that is not
/// keeps the process from using all memory of the machine.
void limit_memory(std::size_t bytes, bool is_strict);

/// Makes the C library return large freed blocks to the system at once, so that memory freed by one
/// job is available to others. Call it before threads are started.
void return_freed_memory_to_system();

/// Makes the C library keep large freed blocks for later allocations: the system clears the pages
/// of a new block, which takes as long as much of the arithmetic on them. Without effect where a
/// limit is strict, and in other programs.
void keep_freed_memory();

/// Ends keep_freed_memory(), and returns what it kept.
void stop_keeping_freed_memory();

/// Compares the memory with the limit before `bytes` more are allocated. Throws MemoryLimitReached,
/// but not while the stack is unwound.
void check_memory(std::size_t bytes);

/// Whether this thread compares its memory with the limit; it does at first. Turned off for work
/// whose failure would affect more than one job.
void set_memory_checks(bool on);

/// The bytes that this thread may allocate before check_memory() is called again.
extern constinit thread_local std::size_t unchecked_bytes;

inline void check_allocation(std::size_t bytes) {
  const bool is_due = bytes > unchecked_bytes;
  unchecked_bytes -= bytes;
  if (is_due) [[unlikely]]
    check_memory(bytes);
}

/// Counts memory that malloc does not know, such as mapped files.
class MappedMemory {
 public:
  MappedMemory() = default;
  /// Throws MemoryLimitReached.
  explicit MappedMemory(std::size_t bytes) { add(bytes); }
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  /// Throws MemoryLimitReached.
  void add(std::size_t bytes);

 private:
  std::size_t bytes_ = 0;
};

}  // namespace attn
