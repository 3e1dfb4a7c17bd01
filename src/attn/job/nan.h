// What is said about NaN: attention lets a visible NaN through, but never in silence.
#pragma once

#include <string>

#include "attn/job/job.h"

namespace attn {

/// A line that says which output holds NaN and which inputs do ("context: expected no NaN, found 8
/// of 12, the first at [0, 0]; Q.npy: Q holds 2, the first at [0, 1]"), or "" when no output holds
/// any. Outputs from before the mask, where a hidden NaN still stands, count only when there are no
/// others.
std::string nan_report(const Job& job, const Result& result);

enum class NanPolicy { warn, allow, refuse };

/// What `policy` wants to be said: nan_report(), or "" where NaN is allowed. Errors: data, with the
/// report, where it is refused.
std::string nan_warning(const Job& job, const Result& result, NanPolicy policy);

}  // namespace attn
