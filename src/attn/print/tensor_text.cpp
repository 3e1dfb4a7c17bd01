#include "attn/print/tensor_text.h"

#include <utility>

#include "attn/print/numpy_text.h"
#include "attn/print/torch_text.h"

namespace attn {
namespace {

std::string jax_repr(const Tensor& tensor, const PrintOptions& options) {
  const std::string prefix = "Array(", dtype = "dtype=" + std::string(name_of(tensor.dtype()));
  const std::string elements = tensor.size() == 0
                                   ? "[], shape=" + to_string(tensor.shape())
                                   : array2string(tensor, options, ", ", prefix.size(), 1);
  const std::size_t last_line = elements.size() - elements.rfind('\n') + 1;
  // JAX adds spaces, but no new line.
  const bool is_full = std::cmp_greater(last_line + dtype.size() + 2, options.linewidth);
  return prefix + elements + "," + (is_full ? std::string(prefix.size(), ' ') : " ") + dtype + ")";
}

/// Text of several lines starts on a line of its own.
std::string tf_value(const std::string& text) {
  return (text.find('\n') == text.npos ? "" : "\n") + text;
}

/// A scalar is converted to a number of Python: 0.1 in float32 is 0.10000000149011612.
std::string tf_numpy_repr(const Tensor& tensor, const PrintOptions& options) {
  if (tensor.rank() > 0) return numpy_repr(tensor, options);
  return numpy_str(is_float(tensor.dtype()) ? cast(tensor, DType::f64) : tensor, options);
}

std::string tf_type(const Tensor& tensor) {
  return "shape=" + to_string(tensor.shape()) + ", dtype=" + std::string(name_of(tensor.dtype()));
}

}  // namespace

std::string str_text(const Tensor& tensor, const PrintOptions& options) {
  switch (options.style) {
    case TextStyle::torch:
      return torch_text(tensor, options);
    case TextStyle::tf:
      return "tf.Tensor(" + tf_value(numpy_str(tensor, options)) + ", " + tf_type(tensor) + ")";
    case TextStyle::numpy:
    case TextStyle::jax:
      break;
  }
  return numpy_str(tensor, options);
}

std::string repr_text(const Tensor& tensor, const PrintOptions& options) {
  switch (options.style) {
    case TextStyle::torch:
      return torch_text(tensor, options);
    case TextStyle::jax:
      return jax_repr(tensor, options);
    case TextStyle::tf:
      return "<tf.Tensor: " + tf_type(tensor) +
             ", numpy=" + tf_value(tf_numpy_repr(tensor, options)) + ">";
    case TextStyle::numpy:
      break;
  }
  return numpy_repr(tensor, options);
}

}  // namespace attn
