// The result of a job: its outputs, and how they were made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "attn/attention/row_block.h"
#include "attn/job/job.h"

namespace attn {

/// The number of NaN in a tensor, and the index of the first among its elements.
struct NanCount {
  std::size_t count = 0, first = 0;
};

/// What is known about an output that was streamed to its file.
struct StreamedOutput {
  Shape shape;
  NanCount nan;
};

struct Result {
  TensorMap outputs;
  std::map<Output, StreamedOutput> streamed;
  std::vector<std::string> tokens;
  /// Schema, program, version, the job's options, digests of its inputs, what its axes are
  /// (job/labels.h), positions of queries, visible keys.
  Json made_by;
  Overflows overflows;
};

/// A result without outputs: tokens and made_by, with the options of `document` and the digests of
/// all inputs. `layers` are those whose results are joined, with the plan of all and the checked
/// inputs of the first.
Result describe_job(const Job& job, const Inputs& in, const Plan& plan, Document document,
                    const TensorFiles& files, const std::vector<std::int64_t>& layers = {});

/// Computes the result's outputs. Outputs with a consumer are passed to it instead
/// (attention/attention.h). Errors as prepare_job().
void compute_job(const Job& job, const PreparedJob& prepared, Result& result,
                 const RowConsumers& consumers = {});

}  // namespace attn
