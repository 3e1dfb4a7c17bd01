// Attention and its gradients computed in a low precision, the baseline of FlashAttention's tests:
// as PyTorch computes the formula, and differentiates it, on tensors of a 16-bit dtype, without
// upcasting.
//
// Each operation takes stored values and rounds its result once to the stored dtype. Sums of matrix
// products and the softmax are computed in float32, those of gradients in float64. The scale is
// applied to the keys, not to the scores (attention_ref(upcast=False, reorder_ops=True) in
// tests/test_flash_attn.py of github.com/Dao-AILab/flash-attention).
#pragma once

#include "attn/problem/inputs.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A result with values of the dtype `stored` (f32, f16 or bf16), in the shape of attend()'s:
/// outputs in f32, gradients and delta in f64. `in` is computed in the same dtype, and its floats
/// have values of `stored`.
Tensor low_precision(const Request& request, const Inputs& in, DType stored);

}  // namespace attn
