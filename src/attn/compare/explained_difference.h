// What explains that a result differs from its job: another layout, or a mistake of the kernel.
#pragma once

#include <optional>

#include "attn/bounds/expected_error.h"
#include "attn/compare/comparison_report.h"
#include "attn/compare/partwise_job.h"
#include "attn/diagnose/diagnosis.h"
#include "attn/job/job.h"

namespace attn {

/// The hint that A has a gradient of keys or values for each query head, which have to be added up
/// in the groups that share a key/value head; nullopt if A does not have the shape of these.
/// `precision`: null with a tolerance.
std::optional<Hint> sum_over_groups(const Compared& compared, const PlannedOutput& planned,
                                    const Inputs& in, const Precision* precision);

/// Finds out what explains the difference, unless the pair passes or has a hint that does. Sets its
/// hints or its diagnosis. `bounded`: it was compared with error bounds of this precision.
void explain_difference(const Job& job, const PreparedJob& prepared, const PlannedOutput& planned,
                        const Precision& precision, bool bounded, SearchLimits& limits,
                        TensorPair& pair);

/// The same of a pair that was compared in parts.
void explain_difference(const PartwiseJob& parts, PartwiseJob::Found& found, const Job& job,
                        const PlannedOutput& planned, const Precision& precision,
                        SearchLimits& limits);

}  // namespace attn
