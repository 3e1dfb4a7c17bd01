// --explain: shows each stage of a job with its formula and matrices, and the arithmetic for one
// query.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/explain/worked_steps.h"
#include "attn/job/job.h"
#include "attn/problem/inputs.h"

namespace attn {

struct ExplainChoice {
  std::optional<std::int64_t> query;  ///< index from 0 to L - 1; default: the first computed
                                      ///< row, or the last that sees a key if the job is causal
  std::int64_t head = 0;
  std::optional<int> decimals = {};  ///< digits after the point; default: six significant digits
};

/// The available outputs that explain() needs.
std::vector<Request> explained_outputs(const Job& job);

/// `in` are the inputs of the job, and `outputs` contains at least explained_outputs(job). Only the
/// first batch is explained. Matrices with more than 6 rows or columns are abbreviated. Errors:
/// usage, if the query or the head does not exist; data, if there are no queries or no keys.
WorkedSteps explain(const Job& job, const Inputs& in, const TensorMap& outputs,
                    const ExplainChoice& choice);

/// The same steps with blanks instead of what is computed; hidden keys keep their minus infinity.
/// Errors: also usage, if a matrix of inputs is abbreviated, or if the results do not follow from
/// the inputs that the steps show: several heads, biases, norms and others.
WorkedSteps exercise(const Job& job, const Inputs& in, const TensorMap& outputs,
                     const ExplainChoice& choice);

}  // namespace attn
