// The parts of make_inputs() that do not depend on shapes: names, options, dtypes.
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
/// alone, float32 for float16 beside bfloat16). Tables
/// (InputKind::table) do not count.
DType result_dtype(const TensorMap& tensors, Compute compute);

/// All tensors but masks, as int64 or `compute`. Reports a uint64 beyond int64.
TensorMap as_numbers(const TensorMap& tensors, DType compute, AxisLengths& axes);

/// A mask as booleans, or as floats of dtype `compute` that are added. Integers 0 and 1 become
/// booleans; others are reported.
Tensor as_mask(Input input, const Tensor& mask, DType compute, AxisLengths& axes);

/// Indices among L queries, negative ones from the end; all of them if `rows` is empty.
std::vector<std::size_t> chosen_rows(const std::vector<std::int64_t>& rows, std::size_t L,
                                     AxisLengths& axes);

}  // namespace attn
