// From what was typed to what is meant, and from that to the result.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/core/options.h"
#include "attn/core/plan.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A job as it is meant: every key understood, every tensor in memory.
struct Job {
  TensorMap tensors;                           ///< by the names of core/inputs.h
  std::map<std::string, std::string> origins;  ///< where each tensor came from, for messages
  Options options;
  std::vector<std::string> outputs;
  std::vector<std::string> tokens;
};

/// Understands every key, reads every file that is named and draws every random tensor, in the
/// order of kInputNames. All that is wrong with the values is told at once. Errors: data, usage
/// (when only flags are at fault), no_input.
Job make_job(const Document& document, TensorFiles& files);

struct Result {
  TensorMap outputs;
  std::vector<std::string> tokens;
  Json made_by;  ///< schema, program, version, the job's options, digests of its inputs
};

/// What run_job() would give and take (core/plan.h). Errors as its own.
Plan plan_job(const Job& job, const Document& document);

/// Computes. Errors name the file that each tensor came from.
Result run_job(const Job& job, const Document& document, const TensorFiles& files);

}  // namespace attn
