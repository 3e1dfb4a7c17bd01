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

/// A job whose shapes are proved, and what it will give and take.
struct PreparedJob {
  Inputs inputs;
  Plan plan;
};

/// Computes nothing yet. Errors name the file that each tensor came from.
PreparedJob prepare_job(const Job& job, const Document& document);

/// Computes. Errors as prepare_job().
Result run_job(const Job& job, const PreparedJob& prepared, const Document& document,
               const TensorFiles& files);

}  // namespace attn
