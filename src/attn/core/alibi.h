// ALiBi: a penalty that grows linearly with distance (Press et al. 2022, arXiv:2108.12409).
#pragma once

#include "attn/core/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// (1, H), f64. With n the largest power of two up to H: 2^(-8 / n), 2^(-16 / n), ... for n heads,
/// then 2^(-4 / n), 2^(-12 / n), ... for those left over.
Tensor standard_slopes(std::size_t H);

/// What is added to the scores of the rows chosen, (B, H, R, S) or (1, H, R, S): the slope of the
/// head (slopes (B, H) or (1, H)) times minus the distance between the places of query and key.
/// Keys appended behind all others are at no distance.
Tensor alibi_bias(const Tensor& slopes, const Inputs& in);

}  // namespace attn
