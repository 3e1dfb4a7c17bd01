// The instruction sets of the kernels, those that this machine supports, and the number of
// processors that this process may use.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace attn::kernel {

/// The number of processors in the process's affinity mask, limited by the CPU quota of its control
/// groups, rounded up (cgroup v2 cpu.max, v1 cpu.cfs_quota_us). At least 1.
std::size_t available_cpus();

}  // namespace attn::kernel

namespace attn::kernel {

/// From the least to the most capable.
enum class Isa {
  baseline,     ///< supported by every machine of this architecture
  avx2,         ///< x86-64-v3: AVX2, FMA, F16C, BMI 1 and 2, LZCNT, MOVBE
  avx512,       ///< F, BW, CD, DQ, VL
  avx512_bf16,  ///< likewise with BF16, which only products of bfloat16 factors use
  amx_bf16,     ///< likewise with AMX, which multiplies tiles of bfloat16 factors
};

/// "baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16".
std::string_view name_of(Isa isa);

/// The instruction sets that this machine supports, least capable first.
const std::vector<Isa>& available_isas();

/// The most capable instruction set, or the one named by the environment variable ATTN_ISA. Throws
/// Error (usage) if that is unknown or not supported.
Isa active_isa();

/// The name of active_isa().
std::string_view isa();

}  // namespace attn::kernel
