// attn compare --reference: compares a result with its job, recomputed in float64.
#pragma once

#include <string>
#include <vector>

#include "attn/cli/comparison_report.h"
#include "attn/cli/job_flags.h"

namespace attn {

/// The options as typed.
struct ReferenceArgs {
  bool enabled = false;         ///< --reference
  std::string precision, sums;  ///< names of core/expected_error.h; "": from the dtype
  std::vector<std::string> as;  ///< --as; the given tensors already have these names
  JobFlags flags;
};

/// Matches the tensors of `given` with outputs of the job, computes these in float64 and compares
/// them: with `tolerance` if `tolerance_typed`, otherwise with the error bounds of the precision.
/// `job` is a file or "". Errors: as attn run; usage, if a tensor is not an output, or if an output
/// has no bound and no tolerance.
CompareReport compare_to_reference(const TensorMap& given, const std::string& job,
                                   const ReferenceArgs& args, TensorFiles& files,
                                   const Tolerance& tolerance, bool tolerance_typed,
                                   std::size_t max_memory);

}  // namespace attn
