// Jobs as the diagnosis takes them.
#pragma once

#include "attn/diagnose/variant.h"
#include "attn/job/job.h"

namespace attn {

/// The job, with the table of pages that it was given, if any.
Variant variant_of(const Job& job);

}  // namespace attn
