// The axes that the tensors of a problem share, and the checks of make_inputs() (problem/inputs.h):
// which names, dtypes and shapes are valid together.
#pragma once

#include <string>
#include <vector>

#include "attn/problem/attention_arguments.h"
#include "attn/problem/axis_lengths.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Checks these shapes (for the axes see check_shapes()):
///   bias_K (G*Dk) and bias_V (G*Dv) · sinks and head_scale (H)
///   q_norm and q_norm_bias (D), (H, D), or (H*D) with QkNormAxis::all; k_norm and k_norm_bias
///   likewise, with G and Dk
///   alibi_slopes (H) or (B, H) · relative_bias (buckets, H)
///   W_score (D, Dk) or, of Score::concat, (D + Dk, A) · W_score_Q (D, A) · W_score_K (Dk, A)
///   b_score and v_score (A) · g_score () or (1)
void check_option_shapes(const AttentionArguments& given, AxisLengths& axes);

/// Reports unknown tensors, and problems with neither embeddings nor Q and K. All other
/// requirements are in the field table (job/fields.h) and are not checked here.
void check_names(const TensorMap& tensors, AxisLengths& axes);

/// The dtype of float results: the requested one, or the widest float given (float64 if all tensors
/// are integers, float32 for float16 together with bfloat16). Tables, flags and seeds (InputKind)
/// do not count. With bf16_products, float32 instead of float64.
DType result_dtype(const TensorMap& tensors, const Options& options);

/// The dtype that the computation uses for an input: `compute` for floats, int64 or, for masks and
/// flags, booleans for integers. Flags are booleans.
DType converted_dtype(std::optional<Input> input, DType given, DType compute);

/// Q, K, V and the past: they stay in the type in which they are stored until something other than
/// a kernel reads them.
bool may_stay_narrow(Input input);

/// A tensor of numbers, converted (converted_dtype()), or when it is first read (may_stay_narrow(),
/// tensor/widened.h). Errors: data, for a uint64 value that does not fit int64.
Tensor as_number(Input input, const Tensor& tensor, DType compute);

/// as_number() of all tensors except masks and flags. Reports its errors.
TensorMap as_numbers(const TensorMap& tensors, DType compute, AxisLengths& axes);

/// A mask as booleans, or as floats of dtype `compute` that are added. Integers 0 and 1 become
/// booleans; others are reported.
Tensor as_mask(Input input, const Tensor& mask, DType compute, AxisLengths& axes);

/// Flags as booleans. Reports numbers other than 0 and 1.
Tensor as_flags(Input input, const Tensor& flags, AxisLengths& axes);

/// Indices among L queries, negative ones from the end; all of them if `rows` is empty.
std::vector<std::size_t> chosen_rows(const std::vector<std::int64_t>& rows, std::size_t L,
                                     AxisLengths& axes);

/// Determines the axes of a problem: B (if there is a batch axis), H, G, L, D, Dk, Dv,
/// S = P + N + E (past keys, new ones, and those appended for every query),
///   HD = H * D, GD = G * Dk, GDv = G * Dv, HDv = H * Dv   the widths of packed tensors
///   Du, HDu = H * Du                                     of contexts times W_UV
///   M, Mk, Mo                                            of embeddings, memory and output
/// and those of the tensors of options (check_option_shapes()).
/// Dk is D unless the score function has weights between queries and keys. If no problem was
/// reported, the axes up to S are known.
void check_shapes(const AttentionArguments& given, AxisLengths& axes);

}  // namespace attn
