// The baseline of a job: the same formula computed in the precision of the result.
#pragma once

#include "attn/bounds/expected_error.h"
#include "attn/job/job.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The output or gradient computed in the dtype that `precision` stores
/// (attention/low_precision.h), from inputs that are rounded to it first. Errors: usage, if there
/// is no such baseline: for f64, which is the precision of the reference, and for tf32.
Tensor baseline_of(const Request& output, const Job& job, const Precision& precision);

}  // namespace attn
