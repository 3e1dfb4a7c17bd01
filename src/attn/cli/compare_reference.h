// attn compare --reference: a result against its job, computed anew in float64.
#pragma once

#include <string>

#include "attn/cli/comparison_report.h"
#include "attn/cli/job_flags.h"

namespace attn {

/// What was typed.
struct ReferenceArgs {
  bool asked = false;
  std::string precision, sums;  ///< core/expected_error.h's names; "": by the result's dtype
  std::string output;           ///< which output a tensor without a name is
  JobFlags flags;
};

/// Which outputs of the job the tensors of `given` are, each with its reference and, unless
/// `tolerance` was typed, with the errors that its precision can be expected to make. `job` is a
/// file or "". Errors: as attn run's; usage, where no errors are known and none are tolerated.
CompareReport compare_to_reference(const TensorMap& given, const std::string& job,
                                   const ReferenceArgs& args, TensorFiles& files,
                                   const Tolerance& tolerance, bool tolerance_typed,
                                   std::size_t most_memory);

}  // namespace attn
