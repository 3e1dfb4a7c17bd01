// Formats the floats of an array with aligned decimal points.
#pragma once

#include <string>
#include <vector>

#include "attn/base/number_text.h"
#include "attn/report/numpy_text.h"

namespace attn {

/// NumPy's FloatingFormat. All numbers of an array share one notation: scientific if the largest
/// magnitude is at least 1e8, or, unless options.suppress, if the smallest is below 1e-4 or the
/// largest is more than 1000 times the smallest (ignoring zeros, NaN and infinities). All have the
/// width of the widest; NaN and infinities are right-aligned.
class FloatFormat {
 public:
  /// `values` are the elements to be printed, of `dtype` (f64, f32 or f16).
  FloatFormat(const std::vector<double>& values, DType dtype, const PrintOptions& options);

  std::string operator()(double value) const;

 private:
  void measure(const std::vector<double>& finite, const PrintOptions& options);

  DType dtype_;
  Notation notation_ = Notation::positional;
  DigitRule rule_;
  std::size_t left_ = 0;      ///< characters before the point
  std::size_t right_ = 0;     ///< characters after it
  std::size_t exponent_ = 0;  ///< digits of the exponent
};

}  // namespace attn
