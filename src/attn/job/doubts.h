// What is legal, and probably not meant.
#pragma once

#include <string>

#include "attn/job/job.h"

namespace attn {

/// A line for a mask of floats that are all 0 or 1: it is added to the scores, as PyTorch and ONNX
/// add it, and hides nothing; somebody who has written 1.0 for "may attend" wants booleans. Else
/// "".
std::string mask_doubt(const Job& job);

}  // namespace attn
