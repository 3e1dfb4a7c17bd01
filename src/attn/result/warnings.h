// Warnings about jobs that are valid but probably not what the user meant.
#pragma once

#include <string>
#include <vector>

#include "attn/job/job.h"
#include "attn/result/nan.h"

namespace attn {

/// One line each, most serious first:
///   - NaN in one of `outputs`, unless `nan` allows it;
///   - numbers of `outputs` that overflowed the result's dtype and became infinite;
///   - a mask of floats that are all 0 or 1: it is added to the scores, as in PyTorch and ONNX, and
///     hides nothing, where its author probably wanted booleans;
///   - tokens that are as many as neither the queries nor the keys, whose labels are then ignored.
/// Errors: data, for NaN under NanPolicy::refuse.
std::vector<std::string> warnings_of(const Job& job, const Inputs& in, const Result& result,
                                     const std::vector<std::string>& outputs, NanPolicy nan);

}  // namespace attn
