// What is legal, and probably not meant.
#pragma once

#include <string>

#include "attn/job/job.h"

namespace attn {

/// A line for a mask of floats that are all 0 or 1: it is added to the scores, as PyTorch and ONNX
/// add it, and hides nothing; somebody who has written 1.0 for "may attend" wants booleans. Else
/// "".
std::string mask_doubt(const Job& job);

/// A line for the first of the job's outputs that holds numbers beyond its dtype: they were finite
/// until they were rounded to float16, and are infinite now. Else "".
std::string overflow_doubt(const Job& job, const Inputs& in, const Result& result);

/// A line for tokens that are neither as many as the queries nor as many as the keys, so that no
/// picture has them as labels. Else "".
std::string token_doubt(const Job& job, const Inputs& in);

}  // namespace attn
