// Descriptors of one open file, for interpose.cpp: whose close() can lose what was written.
#pragma once

#include <atomic>

/// Two descriptors of one open file: what was written by then, closing either tells of. Closing the
/// other afterwards cannot lose it.
class Twins {
 public:
  void pair(int fd, int copy) {
    if (!knows(fd) || !knows(copy)) return;
    twin_[fd] = copy + 1;
    twin_[copy] = fd + 1;
    told_[fd] = told_[copy] = false;
  }
  void write(int fd) {
    if (knows(fd)) told_[fd] = false;
  }
  bool is_told(int fd) const { return knows(fd) && told_[fd]; }
  void close(int fd, bool well) {
    if (!knows(fd)) return;
    if (const int twin = twin_[fd].exchange(0) - 1; twin >= 0) {
      twin_[twin] = 0;
      told_[twin] = well;
    }
    told_[fd] = false;
  }

 private:
  static bool knows(int fd) { return fd >= 0 && fd < kMost; }
  static constexpr int kMost = 1024;
  std::atomic<int> twin_[kMost] = {};  // and one more; 0: none
  std::atomic<bool> told_[kMost] = {};
};
