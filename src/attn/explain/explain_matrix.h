// Matrices, sums and products in formulas.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attn/draw/markup.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A view of a tensor as a matrix.
struct FormulaMatrix {
  std::size_t rows = 0, columns = 0;
  Tensor elements;  ///< row-major
  std::size_t size() const { return elements.size(); }
  double operator[](std::size_t index) const;  ///< by row-major index
  double at(std::size_t i, std::size_t j) const { return (*this)[i * columns + j]; }
};

/// Whether all elements are equal. NaN is not equal to anything.
bool equal(const FormulaMatrix& a, const FormulaMatrix& b);

/// A tensor of one or two axes.
FormulaMatrix matrix_of(const Tensor& tensor);

/// The matrix, f64, whose elements are at(row, column).
FormulaMatrix filled(std::size_t rows, std::size_t columns,
                     const std::function<double(std::size_t, std::size_t)>& at);

/// The indices 0 to count - 1; if there are more than six, the first and last three, and `also`.
std::vector<std::size_t> edges(std::size_t count, const std::vector<std::size_t>& also = {});

/// visible_label(), cut to 12 columns.
std::string token_label(const std::string& token);

/// Tokens of the rows and columns of a matrix; ignored if their number does not match.
struct MatrixLabels {
  std::vector<std::string> rows = {}, columns = {};
  std::vector<std::size_t> shown_rows = {}, shown_columns = {};  ///< also if the matrix is large
};

/// The matrix in brackets; a large one is abbreviated with dots, but not its `shown_rows` and
/// `shown_columns`. One without elements is the word "empty".
Math matrix_math(const FormulaMatrix& matrix, const MatrixLabels& labels = {});

/// s_{i,j}
Math element(const std::string& name, std::size_t i, std::size_t j);

/// term(0) + ... + term(count - 1); in a long sum, dots replace all but the first two, the last and
/// those of `also`.
Math sum(std::size_t count, const std::function<Math(std::size_t)>& term,
         const std::vector<std::size_t>& also = {});

/// a * b, with negative numbers in parentheses.
Math product(double a, double b);

}  // namespace attn
