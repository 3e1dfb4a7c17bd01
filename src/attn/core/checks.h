// The parts of make_inputs() that do not depend on shapes: names, options, dtypes.
#pragma once

#include <string>
#include <vector>

#include "attn/core/axis_lengths.h"
#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Reports unknown tensors, and problems with neither embeddings nor Q and K. All other
/// requirements are in the field table (job/fields.h) and are not checked here.
void check_names(const TensorMap& tensors, AxisLengths& axes);

/// The dtype of float results: the requested one, or the widest float given (float64 if all tensors
/// are integers, float32 for float16 together with bfloat16). Tables (InputKind::table) do not
/// count.
DType result_dtype(const TensorMap& tensors, Compute compute);

/// All tensors except masks, converted to int64 or `compute`. Reports uint64 values that do not fit
/// int64.
TensorMap as_numbers(const TensorMap& tensors, DType compute, AxisLengths& axes);

/// A mask as booleans, or as floats of dtype `compute` that are added. Integers 0 and 1 become
/// booleans; others are reported.
Tensor as_mask(Input input, const Tensor& mask, DType compute, AxisLengths& axes);

/// Indices among L queries, negative ones from the end; all of them if `rows` is empty.
std::vector<std::size_t> chosen_rows(const std::vector<std::int64_t>& rows, std::size_t L,
                                     AxisLengths& axes);

}  // namespace attn
