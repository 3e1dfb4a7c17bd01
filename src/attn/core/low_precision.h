// Attention computed in a low precision, the baseline of FlashAttention's tests: as PyTorch
// computes the formula on tensors of a 16-bit dtype, without upcasting.
//
// Each operation takes stored values and rounds its result once to the stored dtype. Sums of matrix
// products and the softmax are computed in float32. The scale is applied to the keys, not to the
// scores (attention_ref(upcast=False, reorder_ops=True) in tests/test_flash_attn.py of
// github.com/Dao-AILab/flash-attention).
#pragma once

#include "attn/core/inputs.h"
#include "attn/core/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The output in f32, with values of the dtype `stored` (f32, f16 or bf16), in the shape of
/// attend()'s result. `in` is computed in f32, and its floats have values of `stored`.
Tensor low_precision(Output output, const Inputs& in, DType stored);

}  // namespace attn
