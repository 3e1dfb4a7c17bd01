// Limits the memory used for reading, and finds the memory limits of this process.
//
// A file can make its reader allocate many times its size: a list of one-element lists in JSON
// takes 40 times its size as text. Readers therefore charge memory before they allocate it, and
// fail if the sum exceeds --max-memory. A charge is never less than what is allocated; freed blocks
// that the allocator may keep (the smaller copies of a growing list) stay charged until the reader
// is done.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "attn/base/error.h"

namespace attn {

/// The least memory limit, in bytes, of this process's control group and those above it; the
/// largest std::size_t if there is none. Of the lines of /proc/self/cgroup, "0::/path" is version 2
/// and "4:memory:/path" version 1. All files are read below `root`, which is "" except in tests.
std::size_t limit_of_control_group(const std::string& root);

/// The least of the machine's memory, limit_of_control_group() and the limit of the address space
/// (ulimit -v), in bytes.
std::size_t memory_of_this_process();

/// The memory that the inputs of one job or command occupy, and what a command other than `run`
/// makes of them. Not thread-safe.
class ReadBudget {
 public:
  explicit ReadBudget(std::size_t limit = std::numeric_limits<std::size_t>::max())
      : limit_(limit), reserved_(limit) {}

  /// Thrown by charge() if the budget is shared and `bytes` in total are not free now.
  struct Busy {
    std::size_t bytes;
  };
  /// Shares the memory with others: `reserved` bytes are reserved for this budget, and `reserve`
  /// tries to raise that number.
  void share(std::size_t reserved, std::function<bool(std::size_t bytes)> reserve) {
    reserved_ = std::min(std::max(reserved, used_), limit_);
    reserve_ = std::move(reserve);
  }

  /// Errors: data, "NAME: takes more than ... bytes of memory to PURPOSE".
  void charge(std::size_t bytes, const std::string& name, const char* purpose = "read") {
    if (bytes > reserved_ - used_) make_room(bytes, name, purpose);
    used_ += bytes;
  }
  void release(std::size_t bytes) { used_ -= bytes; }
  std::size_t left() const { return limit_ - used_; }
  bool has_refused() const { return has_refused_; }

 private:
  void make_room(std::size_t bytes, const std::string& name, const char* purpose);

  std::size_t limit_, reserved_, used_ = 0;  ///< used_ <= reserved_ <= limit_
  std::function<bool(std::size_t)> reserve_;
  bool has_refused_ = false;
};

/// Bytes that one reader has charged. The destructor releases them.
class MemoryCharge {
 public:
  /// Without a budget nothing is limited. `name` is used in errors.
  MemoryCharge(ReadBudget* budget, std::string name) : budget_(budget), name_(std::move(name)) {}
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;
  ~MemoryCharge() { release_to(0); }

  /// Errors: data.
  void add(std::size_t bytes) {
    if (budget_ == nullptr) return;
    budget_->charge(bytes, name_);
    bytes_ += bytes;
  }
  /// `count` things of `size` bytes. Errors: data.
  void add(std::size_t count, std::size_t size) {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes))
      bytes = std::numeric_limits<std::size_t>::max();
    add(bytes);
  }

  /// To be called before each push_back(). Errors: data.
  template <class Vector>
  void grow(const Vector& vector) {
    if (vector.size() < vector.capacity()) [[likely]]
      return;
    add(kBlock + std::max<std::size_t>(1, 2 * vector.size()) * sizeof(typename Vector::value_type));
  }

  /// Reserves `count` elements of an empty vector. Errors: data.
  template <class Vector>
  void reserve(Vector& vector, std::size_t count) {
    add(kBlock + count * sizeof(typename Vector::value_type));
    vector.reserve(count);
  }

  /// A string of `size` characters, beyond the ones stored inline.
  void add_string(std::size_t size) {
    constexpr std::size_t kInline = 15;
    if (size > kInline) add(kBlock + size);
  }

  std::size_t bytes() const { return bytes_; }
  void release_to(std::size_t bytes) {
    if (budget_ != nullptr) budget_->release(bytes_ - bytes);
    bytes_ = bytes;
  }
  /// Leaves the bytes charged to the budget when this object is destroyed.
  void keep() { bytes_ = 0; }

  static constexpr std::size_t kBlock = 32;     ///< most bytes that the allocator adds to a block
  static constexpr std::size_t kTensor = 1024;  ///< a Tensor in a TensorMap, without its name

 private:
  ReadBudget* budget_;
  std::string name_;
  std::size_t bytes_ = 0;
};

}  // namespace attn
