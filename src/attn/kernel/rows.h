// What each query row needs to know while its scores are worked on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "attn/kernel/problem.h"

namespace attn::kernel {

/// A matrix that stands elsewhere.
struct Matrix {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t row = 0, column = 1;  ///< strides in elements
};
/// That of one batch item and head of an operand.
Matrix matrix_of(const Operand& operand, std::size_t batch, std::size_t head);

/// One row of the flat (B * H * L) rows of queries.
template <class T>
struct Row {
  Place place;
  T sink = -std::numeric_limits<T>::infinity();
  std::array<const std::uint8_t*, 3> masks{};  ///< of this row, key 0
  std::array<const T*, 2> biases{};            ///< of this row, key 0
  const T* distances = nullptr;                ///< of this row, key 0
  const std::byte* query = nullptr;            ///< its first element
  T* context = nullptr;
};

/// Rows [first, first + count), batch item, head and query counted in row-major order.
template <class T>
void make_rows(const Problem<T>& problem, const Results<T>& results, std::size_t first,
               std::size_t count, Row<T>* rows);

/// Whether the row sees key j, masks and biases included.
template <class T>
bool sees(const Problem<T>& problem, const Row<T>& row, std::size_t j);

/// Element (i, j), whatever the dtype.
double element(const Matrix& matrix, std::size_t i, std::size_t j);

}  // namespace attn::kernel
