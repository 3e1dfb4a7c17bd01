// Inputs for which mistakes of kernels are visible.
#pragma once

#include <cstdint>

#include "attn/diagnose/variant.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// All tensors of the job, of the same shapes and dtypes, with other numbers in those that take
/// part in products, and in sinks:
///   queries  of several kinds, row by row: with scores that are almost equal, that differ, that
///            reach the softcap, and that are all negative
///   keys     with a common part, and larger in the first and in the last 16 tokens
///   values   with a standard deviation of 8, larger in the same tokens
///   sinks    near the logsumexp of the scores, but not near 0, different in each head
/// Embeddings of at least 16 columns and W_Q, W_K, W_V get numbers such that queries, keys and
/// values are like these: of the columns, some take part in queries only, the others in keys and
/// values only. ALiBi slopes are at least 0.1, and head scales at least 0.25 away from 1. Masks,
/// other biases, lengths and other tensors stay as they are. Errors: data.
TensorMap adversarial_inputs(const Variant& given, std::uint64_t seed);

}  // namespace attn
