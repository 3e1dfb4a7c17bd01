// Which jobs can be worked out step by step.
#pragma once

#include "attn/job/job.h"

namespace attn {

/// Error(usage), naming what is in the way, for a job whose arithmetic job/explain.h cannot write
/// out: anything but dot products or cosines and softmax, a cache, keys appended, queries and keys
/// that are normalised or turned.
void require_explainable(const Job& job);

}  // namespace attn
