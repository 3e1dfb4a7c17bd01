// Tensors as text in the style of a library.
#pragma once

#include <string>

#include "attn/base/print_options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// What print() shows. JAX prints arrays as NumPy does.
std::string str_text(const Tensor& tensor, const PrintOptions& options);

/// What a notebook shows: array([...]), tensor([...]), Array([...], dtype=float32) of JAX 0.10,
/// <tf.Tensor: ...> of TensorFlow 2.4 and later.
std::string repr_text(const Tensor& tensor, const PrintOptions& options);

}  // namespace attn
