// Checks that each key of a job comes with the keys and tensors that it requires.
#pragma once

#include "attn/job/job.h"

namespace attn {

/// Checks the requirements of the field table for all keys that were given with a value other than
/// the default: "--top-k: requires --normaliser top_k". Keys shared by all jobs of a batch are
/// allowed to have no effect. Errors: usage if only flags are at fault, otherwise data.
void check_key_requirements(const Job& job, const Document& document);

}  // namespace attn
