// Matrices in formulas, and sums of products spelt out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attn/report/math.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Of a tensor's elements, of which it makes no copy: they may be many.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  Tensor elements;  ///< row-major
  std::size_t size() const { return elements.size(); }
  double operator[](std::size_t place) const;  ///< among all elements
  double at(std::size_t i, std::size_t j) const { return (*this)[i * columns + j]; }
};

/// Whether all elements are equal, and none is NaN.
bool equal(const Matrix& a, const Matrix& b);

/// A tensor of one or two axes.
Matrix matrix_of(const Tensor& tensor);

/// All places of up to 6, else the first and last three.
std::vector<std::size_t> edges(std::size_t count);

/// "[ ... ]", large ones by their edges with dots between.
Math shown(const Matrix& matrix);

/// s_{i,j}
Math element(const std::string& name, std::size_t i, std::size_t j);

/// term(0) + term(1) + ... + term(count - 1), the middle of a long one left out.
Math sum(std::size_t count, const std::function<Math(std::size_t)>& term);

/// a * b, negative ones in brackets.
Math product(double a, double b);

}  // namespace attn
