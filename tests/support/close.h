// How tests compare numbers: never by ==, never blind to NaN.
#pragma once

#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

/// What a tensor should be: its shape, its elements, and how far each may be off.
struct Expected {
  attn::Shape shape;
  std::vector<double> values;
  double bound = 0;  ///< absolute
};

/// "" when `actual` has the shape and every element lies within the bound; otherwise what differs
/// and where it is worst. NaN on either side always differs. An infinity equals only itself.
std::string difference(const attn::Tensor& actual, const Expected& expected);

/// `relative` times the largest finite magnitude among the values.
double norm_bound(const std::vector<double>& values, double relative);

/// The elements as doubles; int64 that a double cannot hold would be rounded.
std::vector<double> doubles_of(const attn::Tensor& tensor);
