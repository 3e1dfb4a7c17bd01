// The parts of make_inputs() that look at no axes: names, options, dtypes.
#pragma once

#include <string>
#include <vector>

#include "attn/core/axis_lengths.h"
#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Reports unknown tensors, and the lack of both embeddings and Q and K. Other requirements are
/// those of the field table (job/fields.h), and are not checked again.
void check_names(const TensorMap& tensors, AxisLengths& axes);

/// The dtype of float results: the one asked for, or the widest float given (float64 for integers
/// alone, float32 for float16 beside bfloat16). Tables do not count: cos, sin, alibi_slopes,
/// relative_bias, sinks.
DType result_dtype(const TensorMap& tensors, Compute compute);

/// Every tensor but the masks as int64 or `compute`. A uint64 that does not fit int64 is a problem.
TensorMap as_numbers(const TensorMap& tensors, DType compute, AxisLengths& axes);

/// A mask's elements: boolean, or floats of dtype `compute` to be added. Integers are taken as
/// booleans when they are all 0 or 1, and are a problem otherwise.
Tensor as_mask(Input input, const Tensor& mask, DType compute, AxisLengths& axes);

/// Places among L queries, negative ones counted from the end; all of them when none is given.
std::vector<std::size_t> chosen_rows(const std::vector<std::int64_t>& rows, std::size_t L,
                                     AxisLengths& axes);

}  // namespace attn
