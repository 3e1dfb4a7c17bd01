// How many processors this process may use.
#pragma once

#include <cstddef>

namespace attn::kernel {

/// At least 1: the processors that the process may run on (its affinity), but no more than the time
/// its control groups grant, rounded up (cgroup v2 cpu.max, v1 cpu.cfs_quota_us).
std::size_t available_cpus();

}  // namespace attn::kernel
