// Other numbers for the inputs of an example, so that it becomes an exercise.
#pragma once

#include <cstdint>

#include "attn/tensor/tensor.h"

namespace attn {

/// Replaces the elements of embeddings, weights, queries, keys, values and other factors by numbers
/// drawn with default_rng(seed), input by input in the order of core/input_table.h. New numbers lie
/// between the least and the largest of their tensor and have as many digits after its point as the
/// given ones, or 2 if these have more than 4. Tensors of equal or infinite elements stay; inputs
/// that are equal remain so.
void draw_new_numbers(TensorMap& tensors, std::uint64_t seed);

}  // namespace attn
