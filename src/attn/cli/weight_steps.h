// Finds in a result what the page's panel "why this weight" needs (draw/page_steps.h).
#pragma once

#include <vector>

#include "attn/cli/rendering.h"
#include "attn/problem/attention_arguments.h"
#include "attn/problem/output_table.h"
#include "attn/run/result_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// What a page of the weights of this problem needs besides these; empty if weights of its options
/// are not explained.
std::vector<Request> requests_of_steps(const AttentionArguments& given);

/// Sets `steps`, or `no_steps`, of the page of `source`, which is a tensor of `result`. Does
/// nothing unless it has weights after dropout, or the weights of a job.
void add_weight_steps(const ResultFile& result, const HeatSource& source, PageSet& set);

/// Adds to these which options hide each key. `in` is the problem of the result.
void add_hiding_options(const Inputs& in, WeightSteps& steps);

}  // namespace attn
