// Comparison of numbers with error bounds; NaN is never equal.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// The expected shape and elements of a tensor, and the error bound of each element.
struct Expected {
  attn::Shape shape;
  std::vector<double> values;
  double bound = 0;  ///< absolute
};

/// "" if `actual` has the shape and all elements are within the bound; otherwise the worst
/// difference and its index. NaN always differs. An infinity equals only itself.
std::string difference(const attn::Tensor& actual, const Expected& expected);

/// `relative` times the largest finite magnitude among the values.
double norm_bound(const std::vector<double>& values, double relative);

/// The elements as doubles; large int64 values are rounded.
std::vector<double> doubles_of(const attn::Tensor& tensor);
