// How much memory the system grants this process.
#pragma once

#include <cstddef>
#include <string>

namespace attn {

/// The least memory limit, in bytes, of this process's control group and those above it; the
/// largest std::size_t where there is none. Of the lines of /proc/self/cgroup, "0::/path" is
/// version 2 and "4:memory:/path" version 1. All files are read below `root`, which is "" except in
/// tests.
std::size_t limit_of_control_group(const std::string& root);

/// The least of the machine's memory, limit_of_control_group() and the limit of the address space
/// (ulimit -v), in bytes.
std::size_t memory_of_this_process();

}  // namespace attn
