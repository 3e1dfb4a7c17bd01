// Converts a job to the input of the diagnosis (diagnose/variant.h).
#pragma once

#include "attn/diagnose/variant.h"
#include "attn/job/job.h"

namespace attn {

/// The job, with the table of pages that it was given, if any.
Variant variant_of(const Job& job);

/// The output that a test compares unless others are named: output with W_O, otherwise context.
Output usual_output(const Job& job);

}  // namespace attn
