// Uniform doubles, computed alike by RandomState and Generator.
#pragma once

#include <cmath>

#include "attn/base/error.h"
#include "attn/random/decimal.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// low + (high - low) * u, where u = bits.next_double() is in [0, 1); exactly u for low = 0 and
/// high = 1. Throws Error (data) if high - low is not finite.
template <class Bits>
Tensor uniform_doubles(Bits& bits, double low, double high, const Shape& shape) {
  const double width = high - low;
  if (!std::isfinite(width))
    throw Error(ErrorKind::data, "bounds: expected high - low to be finite, found [" +
                                     decimal(low) + ", " + decimal(high) + ")");
  Tensor result(DType::f64, shape);
  for (double& value : result.mutable_data<double>()) value = low + width * bits.next_double();
  return result;
}

}  // namespace attn
