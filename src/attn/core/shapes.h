// Which tensor's axes have to agree with which; ranks, heads and groups.
#pragma once

#include "attn/core/axes.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Settles the letters of a problem: B (where there is a batch axis), H, G, L, S, D, Dv, N and P
/// (new keys and those of the past, if any: S = P + N), and
///   HD = H * D, GD = G * D, GDv = G * Dv, HDv = H * Dv   the widths of packed tensors
///   M, Mk, Mo                                            of embeddings, memory and output.
/// With no problems all of the first row are known.
void check_shapes(const TensorMap& tensors, const Options& options, Axes& axes);

}  // namespace attn
