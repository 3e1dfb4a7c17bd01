// How arrays are printed: the options of the set_printoptions functions of NumPy and PyTorch.
#pragma once

#include <string>

namespace attn {

/// The library whose text is reproduced.
enum class TextStyle {
  numpy,
  torch,  ///< PyTorch: tensor([1., 2.])
  jax,    ///< JAX: as NumPy, but with the repr Array([1., 2.], dtype=float32)
  tf      ///< TensorFlow: tf.Tensor([1. 2.], shape=(2,), dtype=float32)
};

/// All integers are >= 0.
struct PrintOptions {
  enum class FloatMode {
    fixed,         ///< exactly `precision` digits after the point
    unique,        ///< the shortest digits of each element; precision is ignored
    maxprec,       ///< the same, but at most `precision`
    maxprec_equal  ///< the same, and all elements have as many as the longest
  };
  /// Whether all numbers have exponents.
  enum class SciMode { automatic, always, never };

  TextStyle style = TextStyle::numpy;
  int precision = 8;      ///< digits after the point
  long threshold = 1000;  ///< larger arrays are summarised with '...'
  int edgeitems = 3;      ///< elements printed at each end of a summarised axis
  int linewidth = 75;

  // Not in the style torch.
  int numpy = 1;          ///< 1 or 2
  bool suppress = false;  ///< never use e-notation for small numbers
  FloatMode floatmode = FloatMode::maxprec;

  // In the style torch only.
  SciMode sci_mode = SciMode::automatic;
  std::string grad_fn;         ///< "MmBackward0" prints grad_fn=<MmBackward0>
  bool requires_grad = false;  ///< prints requires_grad=True unless there is a grad_fn

  /// The defaults of a style. JAX requires NumPy 2.
  static PrintOptions defaults_of(TextStyle style) {
    PrintOptions options;
    options.style = style;
    if (style == TextStyle::jax) options.numpy = 2;
    if (style == TextStyle::torch) {
      options.precision = 4;
      options.linewidth = 80;
    }
    return options;
  }
};

}  // namespace attn
