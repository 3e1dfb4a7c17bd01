// A job: options and tensors from a job document, checked, computed and described.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "attn/core/options.h"
#include "attn/core/plan.h"
#include "attn/core/rounding.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A job with parsed options and all tensors in memory.
struct Job {
  TensorMap tensors;                           ///< by the names of core/inputs.h
  std::map<std::string, std::string> origins;  ///< where each tensor came from, for messages
  Options options;
  std::vector<std::string> outputs;
  std::vector<std::string> tokens;
};

/// Parses all options, reads all files and generates random tensors in the order of kInputs.
/// Errors: data, usage (if only flags are at fault), no_input.
Job make_job(const Document& document, TensorFiles& files);

/// Bytes of the files that a job names and of its random tensors, estimated from stat() and shapes
/// before anything is read.
std::size_t bytes_to_read(const Document& document);

/// Checks the type and range of all values. Errors: usage if only flags are at fault, otherwise
/// data.
void check_values(const Document& document);

/// NaN in a tensor: how many, and where the first is among its elements.
struct NanCount {
  std::size_t count = 0, first = 0;
};

/// An output that went to its file row by row, and what was seen of it.
struct StreamedOutput {
  Shape shape;
  NanCount nan;
};

struct Result {
  TensorMap outputs;
  std::map<std::string, StreamedOutput> streamed;
  std::vector<std::string> tokens;
  Json made_by;  ///< schema, program, version, the job's options, digests of its inputs
  Overflows overflows;
};

/// A job whose shapes have been checked, and its plan.
struct PreparedJob {
  Inputs inputs;
  Plan plan;
};

/// Checks and plans a job without computing it; `offered` are outputs that can be taken row by row.
/// Errors: data, usage if only flags are at fault; they name the file of each tensor.
PreparedJob prepare_job(const Job& job, const Document& document,
                        const std::set<std::string>& offered = {});

/// A result without its outputs: the tokens, and what made it. Takes the digests of all inputs.
Result describe_job(const Job& job, Document document, const TensorFiles& files);

/// Computes the result's outputs; those with a sink go there (core/attention.h). Errors as
/// prepare_job().
void compute_job(const Job& job, const PreparedJob& prepared, const Document& document,
                 Result& result, const RowSinks& sinks = {});

}  // namespace attn
