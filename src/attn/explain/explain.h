// A job's result as a teacher would write it: each stage's formula with the numbers put in, and for
// one query the arithmetic spelt out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/job/job.h"
#include "attn/report/worked_steps.h"

namespace attn {

struct ExplainChoice {
  std::optional<std::int64_t> query;  ///< its place among all L; default: the first computed
  std::int64_t head = 0;
};

/// The outputs that the explanation of this job needs, as far as the job has them.
std::vector<std::string> explained_outputs(const Job& job);

/// `outputs` holds at least explained_outputs(job). Of batches the first is explained. Matrices of
/// up to 6 rows and columns are shown whole, larger ones by their edges. Errors: usage, for a query
/// or a head that there is not; data, where there is none at all.
WorkedSteps explain(const Job& job, const TensorMap& outputs, const ExplainChoice& choice);

}  // namespace attn
