// Arrays as text, byte for byte as NumPy 1.24 prints them (numpy.core.arrayprint).
//
// The elements that are shown decide together on one notation and one number of digits
// (report/float_format.h), then fill lines between brackets (report/array_layout.h). bfloat16,
// which NumPy lacks, is printed with the digits of float32, in which each of its values is exact.
#pragma once

#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

/// numpy.set_printoptions, with its defaults. No number is negative.
struct PrintOptions {
  enum class FloatMode {
    fixed,         ///< exactly `precision` digits after the point
    unique,        ///< for each element as few as tell it from its neighbours; precision is ignored
    maxprec,       ///< the same, but `precision` at most
    maxprec_equal  ///< the same, and all elements as many as the longest of them
  };
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
