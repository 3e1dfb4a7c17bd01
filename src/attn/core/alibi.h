// ALiBi: a penalty that grows linearly with distance (Press et al. 2022, arXiv:2108.12409).
#pragma once

#include "attn/core/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// (1, H), f64. With n the largest power of two up to H: 2^(-8 / n), 2^(-16 / n), ... for n heads,
/// then 2^(-4 / n), 2^(-12 / n), ... for the others.
Tensor standard_slopes(std::size_t H);

/// The biases of in.rows, (B, H, R, S) or (1, H, R, S): minus the slope of the head (slopes (B, H)
/// or (1, H)) times the distance between the positions of query and key. Appended keys have
/// distance 0.
Tensor alibi_bias(const Tensor& slopes, const Inputs& in);

}  // namespace attn
