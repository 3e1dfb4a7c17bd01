// Arrays as text, byte for byte as NumPy 1.24 prints them (numpy.core.arrayprint).
//
// The printed elements determine one notation and one number of digits (report/float_format.h), and
// are laid out in lines with brackets (report/array_layout.h). bfloat16, which NumPy lacks, is
// printed as float32, which is exact.
#pragma once

#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

/// numpy.set_printoptions, with its defaults. No number is negative.
struct PrintOptions {
  enum class FloatMode {
    fixed,         ///< exactly `precision` digits after the point
    unique,        ///< the shortest digits of each element; precision is ignored
    maxprec,       ///< the same, but at most `precision`
    maxprec_equal  ///< the same, and all elements have as many as the longest
  };
  int precision = 8;      ///< digits after the point
  long threshold = 1000;  ///< larger arrays are summarised with '...'
  int edgeitems = 3;      ///< elements printed at each end of a summarised axis
  int linewidth = 75;
  bool suppress = false;  ///< never use e-notation for small numbers
  FloatMode floatmode = FloatMode::maxprec;
};

std::string numpy_str(const Tensor& tensor, const PrintOptions& options = {});   ///< print(a)
std::string numpy_repr(const Tensor& tensor, const PrintOptions& options = {});  ///< array([...])

}  // namespace attn
