// The inputs of one query row, resolved from a problem's strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "attn/kernel/problem.h"

namespace attn::kernel {

/// A view of a matrix.
struct Matrix {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t row = 0, column = 1;    ///< strides in elements
  const std::int64_t* rows = nullptr;  ///< those of Operand, instead of the row stride
  const Decoding* decoding = nullptr;  ///< nullptr: elements are numbers
  const std::int64_t* starts = nullptr;
  const double *factors = nullptr, *zeros = nullptr;  ///< those of the head
  const Operand* rest = nullptr;                      ///< that of Operand, as are these
  std::size_t width = 0;
  std::size_t batch = 0, head = 0;  ///< of the matrix, for `rest`
};
/// The matrix of one batch item and head of an operand.
Matrix matrix_of(const Operand& operand, std::size_t batch, std::size_t head);

/// One of the B * H * L query rows.
template <class T>
struct Row {
  KeyRange range;
  T sink = -std::numeric_limits<T>::infinity();
  T head_scale = 1;
  std::array<const std::uint8_t*, 3> masks{};  ///< at key 0
  std::array<const T*, 2> biases{};            ///< at key 0
  const T* distances = nullptr;                ///< at key 0
  const std::uint8_t* dropout = nullptr;       ///< at key 0
  const std::byte* query = nullptr;            ///< first element
  T* context = nullptr;
};

/// Sets `rows` to rows [first, first + count) in the order (batch item, head, query).
template <class T>
void make_rows(const AttentionProblem<T>& problem, const Results<T>& results, std::size_t first,
               std::size_t count, Row<T>* rows);

/// Whether the row sees key j, according to its key range, masks and biases.
template <class T>
bool sees(const AttentionProblem<T>& problem, const Row<T>& row, std::size_t j);

/// What dropout multiplies the row's weight of key j by: 0 if it is dropped.
template <class T>
T dropout_factor(const AttentionProblem<T>& problem, const Row<T>& row, std::size_t j);

/// The factors of the blocks of columns of row i.
inline std::int64_t first_factor(const Matrix& matrix, std::size_t i) {
  return matrix.starts ? matrix.starts[i] : 0;
}

/// Element (i, j), converted from any dtype or code.
template <class T>
T element(const Matrix& matrix, std::size_t i, std::size_t j);

}  // namespace attn::kernel
