// What each query row needs to know while its scores are worked on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attn/kernel/problem.h"

namespace attn::kernel {

/// One row of the flat (B * H * L) rows of queries.
template <class T>
struct Row {
  std::int64_t first = 0, last = 0;    ///< keys [first, last) pass causal, window and lengths
  std::int64_t center = 0;             ///< i + offset
  const std::uint8_t* mask = nullptr;  ///< of this row, key 0
  const T* bias = nullptr;             ///< of this row, key 0
  T slope = 0;                         ///< of ALiBi
  T* context = nullptr;
};

/// Row `flat` of the problem: batch item, head and query in row-major order.
template <class T>
Row<T> make_row(const Problem<T>& problem, const Results<T>& results, std::size_t flat);

/// Whether the row sees key j, mask and bias included.
template <class T>
bool sees(const Problem<T>& problem, const Row<T>& row, std::size_t j);

/// The matrix of one batch item and head of an operand.
struct Matrix {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t row = 0, column = 1;  ///< strides in elements
};
Matrix matrix_of(const Operand& operand, std::size_t batch, std::size_t head);

/// Row i of the queries that belongs to row `flat`, as a matrix of one row.
template <class T>
Matrix query_of(const Problem<T>& problem, std::size_t flat);

/// Element (i, j), whatever the dtype.
double element(const Matrix& matrix, std::size_t i, std::size_t j);

}  // namespace attn::kernel
