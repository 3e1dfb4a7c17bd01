// Limits on what is read.
#pragma once

#include <cstddef>
#include <limits>

#include "attn/io/file.h"

namespace attn {

/// Limits on .npz archives.
struct NpzLimits {
  std::size_t members = 65536;
  std::size_t name = 1024;                      ///< bytes of a member's name
  std::size_t expanded = std::size_t{8} << 30;  ///< bytes of all deflated members, expanded
  std::size_t ratio = 2000;                     ///< expanded : compressed, beyond 64 MiB
};

struct ReadLimits {
  /// Bytes of one file, or of all random tensors of a job.
  std::size_t memory = std::numeric_limits<std::size_t>::max();
  NpzLimits npz = {};
  FileAccess access = FileAccess::read;
};

}  // namespace attn
