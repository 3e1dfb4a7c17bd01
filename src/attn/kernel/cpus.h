// The number of processors that this process may use.
#pragma once

#include <cstddef>

namespace attn::kernel {

/// The number of processors in the process's affinity mask, limited by the CPU quota of its control
/// groups, rounded up (cgroup v2 cpu.max, v1 cpu.cfs_quota_us). At least 1.
std::size_t available_cpus();

}  // namespace attn::kernel
