// How a plan is printed, as JSON and as text.
#pragma once

#include <string>

#include "attn/attention/plan.h"
#include "attn/run/memory_estimate.h"

namespace attn {

/// {"outputs": [{"name", "shape", "dtype", "bytes", "flops"}], "memory": N, "flops": N, "path":
/// "kernels" or "reference", "fallback_reason": why the kernels are not used} on one line;
/// "streamed": true for outputs that are written during the computation.
std::string plan_json(const Plan& plan, const MemoryEstimate& memory);

/// One line for each output, and one for the totals.
std::string plan_text(const Plan& plan, const MemoryEstimate& memory);

}  // namespace attn
