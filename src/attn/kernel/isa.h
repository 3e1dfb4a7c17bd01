// Which of the kernels' instruction sets this machine runs.
#pragma once

#include <string_view>
#include <vector>

namespace attn::kernel {

/// From the least to the most capable.
enum class Isa {
  baseline,  ///< whatever every machine of this architecture has
  avx2,      ///< with the rest of x86-64-v3: FMA, F16C, BMI 1 and 2, LZCNT, MOVBE
  avx512,    ///< F, BW, CD, DQ, VL
};

/// "baseline", "avx2", "avx512".
std::string_view name_of(Isa isa);

/// Those that this machine can run, least capable first.
const std::vector<Isa>& available_isas();

/// The most capable one, or the one that the environment variable ATTN_ISA names. Errors: usage,
/// for a name that is unknown or that this machine cannot run.
Isa active_isa();

/// The name of active_isa().
std::string_view isa();

}  // namespace attn::kernel
