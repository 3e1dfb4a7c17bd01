// For interpose.cpp: tracks duplicated descriptors, to tell whether a failed close() can lose data.
#pragma once

#include <atomic>

/// Pairs of descriptors of one open file. Closing either one reports errors of earlier writes, so a
/// failure to close the other one afterwards loses nothing.
class Twins {
 public:
  void pair(int fd, int copy) {
    if (!is_tracked(fd) || !is_tracked(copy)) return;
    twin_[fd] = copy + 1;
    twin_[copy] = fd + 1;
    reported_[fd] = reported_[copy] = false;
  }
  void write(int fd) {
    if (is_tracked(fd)) reported_[fd] = false;
  }
  bool is_reported(int fd) const { return is_tracked(fd) && reported_[fd]; }
  void close(int fd, bool succeeded) {
    if (!is_tracked(fd)) return;
    if (const int twin = twin_[fd].exchange(0) - 1; twin >= 0) {
      twin_[twin] = 0;
      reported_[twin] = succeeded;
    }
    reported_[fd] = false;
  }

 private:
  static bool is_tracked(int fd) { return fd >= 0 && fd < kMost; }
  static constexpr int kMost = 1024;
  std::atomic<int> twin_[kMost] = {};  // the other descriptor plus 1; 0: none
  std::atomic<bool> reported_[kMost] = {};
};
