// What reading may take, and what there is.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "attn/io/file.h"

namespace attn {

/// Bounds on what compressed data may grow to.
struct NpzLimits {
  std::size_t members = 65536;
  std::size_t name = 1024;                      ///< bytes of a member's name
  std::size_t expanded = std::size_t{8} << 30;  ///< bytes that all deflated members may become
  std::size_t ratio = 2000;                     ///< inflated : stored, beyond 64 MiB
};

struct ReadLimits {
  /// Bytes that one file, or all that a job draws, may have.
  std::size_t memory = std::numeric_limits<std::size_t>::max();
  NpzLimits npz = {};
  FileAccess access = FileAccess::read;
};

/// Bytes of memory that the control group of this process, and those above it, leave it; the
/// largest number where they set no limit. Of lines of /proc/self/cgroup, "0::/path" is version 2
/// and "4:memory:/path" version 1. All is read below `root`, "" save in tests.
std::size_t limit_of_control_group(const std::string& root);

/// Bytes of memory that this process may have: those of the machine, its control group (versions 1
/// and 2, with those above it) or its address space limit (ulimit -v), whichever is least.
std::size_t memory_of_this_process();

}  // namespace attn
