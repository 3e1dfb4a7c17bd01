#include "attn/kernel/rows.h"

#include <algorithm>
#include <limits>

namespace attn::kernel {
namespace {

std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b < 0 ? std::numeric_limits<std::int64_t>::min()
               : std::numeric_limits<std::int64_t>::max();
}

struct Place {
  std::size_t batch, head, query;
};

template <class T>
Place place_of(const Problem<T>& problem, std::size_t flat) {
  return {flat / problem.L / problem.H, flat / problem.L % problem.H, flat % problem.L};
}

std::ptrdiff_t offset_of(const Strides& strides, std::size_t batch, std::size_t head,
                         std::int64_t row) {
  return static_cast<std::int64_t>(batch) * strides.batch +
         static_cast<std::int64_t>(head) * strides.head + row * strides.row;
}

}  // namespace

template <class T>
Row<T> make_row(const Problem<T>& problem, const Results<T>& results, std::size_t flat) {
  const auto [b, h, l] = place_of(problem, flat);
  const auto position = problem.positions ? problem.positions[l] : static_cast<std::int64_t>(l);
  Row<T> row;
  row.center = saturating_add(position, problem.offset);
  row.last = static_cast<std::int64_t>(problem.S);
  if (problem.lengths) row.last = std::min(row.last, problem.lengths[b]);
  if (problem.causal) row.last = std::min(row.last, saturating_add(row.center, 1));
  if (problem.right >= 0)
    row.last = std::min(row.last, saturating_add(saturating_add(row.center, problem.right), 1));
  if (problem.left >= 0) row.first = saturating_add(row.center, -problem.left);
  row.first = std::clamp<std::int64_t>(row.first, 0, static_cast<std::int64_t>(problem.S));
  row.last = std::max(row.last, row.first);
  if (problem.mask) row.mask = problem.mask + offset_of(problem.mask_strides, b, h, position);
  if (problem.bias) row.bias = problem.bias + offset_of(problem.bias_strides, b, h, position);
  if (problem.alibi) row.slope = problem.alibi[h];
  if (results.context)
    row.context =
        results.context + offset_of(results.context_strides, b, h, static_cast<std::int64_t>(l));
  return row;
}

template <class T>
bool sees(const Problem<T>& problem, const Row<T>& row, std::size_t j) {
  const auto key = static_cast<std::int64_t>(j);
  if (key < row.first || key >= row.last) return false;
  if (row.mask && row.mask[key * problem.mask_strides.column] == 0) return false;
  return !row.bias ||
         row.bias[key * problem.bias_strides.column] != -std::numeric_limits<T>::infinity();
}

Matrix matrix_of(const Operand& operand, std::size_t batch, std::size_t head) {
  if (operand.data == nullptr) return {nullptr, operand.dtype};
  const std::ptrdiff_t offset = offset_of(operand.strides, batch, head, 0);
  return {static_cast<const std::byte*>(operand.data) +
              offset * static_cast<std::ptrdiff_t>(size_of(operand.dtype)),
          operand.dtype, operand.strides.row, operand.strides.column};
}

template <class T>
Matrix query_of(const Problem<T>& problem, std::size_t flat) {
  const auto [b, h, l] = place_of(problem, flat);
  Matrix matrix = matrix_of(problem.q, b, h);
  matrix.data += static_cast<std::int64_t>(l) * matrix.row *
                 static_cast<std::ptrdiff_t>(size_of(matrix.dtype));
  return matrix;
}

double element(const Matrix& matrix, std::size_t i, std::size_t j) {
  const std::ptrdiff_t at =
      static_cast<std::int64_t>(i) * matrix.row + static_cast<std::int64_t>(j) * matrix.column;
  switch (matrix.dtype) {
    case DType::f64:
      return reinterpret_cast<const double*>(matrix.data)[at];
    case DType::f16:
      return double(reinterpret_cast<const Half*>(matrix.data)[at]);
    case DType::bf16:
      return double(reinterpret_cast<const BFloat16*>(matrix.data)[at]);
    default:
      return double(reinterpret_cast<const float*>(matrix.data)[at]);
  }
}

template Row<float> make_row(const Problem<float>&, const Results<float>&, std::size_t);
template Row<double> make_row(const Problem<double>&, const Results<double>&, std::size_t);
template bool sees(const Problem<float>&, const Row<float>&, std::size_t);
template bool sees(const Problem<double>&, const Row<double>&, std::size_t);
template Matrix query_of(const Problem<float>&, std::size_t);
template Matrix query_of(const Problem<double>&, std::size_t);

}  // namespace attn::kernel
