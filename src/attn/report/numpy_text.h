// Arrays as text, byte for byte as NumPy 1.24 prints them (numpy.core.arrayprint).
#pragma once

#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

/// numpy.set_printoptions, with its defaults.
struct PrintOptions {
  enum class FloatMode { fixed, unique, maxprec, maxprec_equal };
  int precision = 8;      ///< digits after the point
  long threshold = 1000;  ///< arrays of more elements are summarised with '...'
  int edgeitems = 3;      ///< elements shown at each end of a summarised axis
  int linewidth = 75;
  bool suppress = false;  ///< never use e-notation for small numbers
  FloatMode floatmode = FloatMode::maxprec;
};

std::string numpy_str(const Tensor& tensor, const PrintOptions& options = {});   ///< print(a)
std::string numpy_repr(const Tensor& tensor, const PrintOptions& options = {});  ///< array([...])

/// A float64 as Python's repr writes it: "2.8414709848078967", "1e-05", "0.0", "nan".
std::string python_repr(double value);

}  // namespace attn
