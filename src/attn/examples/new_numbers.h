// Other numbers for the inputs of an example, so that it becomes an exercise.
#pragma once

#include "attn/random/generator.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Replaces the elements of embeddings, weights, queries, keys, values and other factors by numbers
/// drawn from `generator`, input by input in the order of problem/input_table.h. New numbers lie
/// between the least and the largest of their tensor and have as many digits after the decimal
/// point as the given ones, or 2 if these have more than 4. A tensor stays if there is no other
/// such number, or if not all of its elements are finite. Inputs that are equal remain so. False if
/// all stay.
bool draw_new_numbers(TensorMap& tensors, Generator& generator);

}  // namespace attn
