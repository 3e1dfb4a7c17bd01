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

std::ptrdiff_t offset_of(const Strides& strides, std::size_t batch, std::size_t head,
                         std::int64_t row) {
  return static_cast<std::int64_t>(batch) * strides.batch +
         static_cast<std::int64_t>(head) * strides.head + row * strides.row;
}

template <class T>
Row<T> make_row(const Problem<T>& problem, const Results<T>& results, std::size_t b, std::size_t h,
                std::size_t l) {
  const auto query = static_cast<std::int64_t>(l);
  const std::int64_t position = problem.positions ? problem.positions[l] : query;
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
  row.query = matrix_of(problem.q, b, h, query);
  if (results.context)
    row.context = results.context + offset_of(results.context_strides, b, h, query);
  return row;
}

}  // namespace

template <class T>
void make_rows(const Problem<T>& problem, const Results<T>& results, std::size_t first,
               std::size_t count, Row<T>* rows) {
  std::size_t l = first % problem.L, h = first / problem.L % problem.H;
  std::size_t b = first / problem.L / problem.H;
  for (std::size_t i = 0; i < count; ++i) {
    rows[i] = make_row(problem, results, b, h, l);
    if (++l < problem.L) continue;
    l = 0;
    if (++h < problem.H) continue;
    h = 0;
    ++b;
  }
}

Matrix matrix_of(const Operand& operand, std::size_t batch, std::size_t head, std::int64_t row) {
  const Strides& strides = operand.strides;
  if (operand.data == nullptr) return {nullptr, operand.dtype};
  return {static_cast<const std::byte*>(operand.data) +
              offset_of(strides, batch, head, row) *
                  static_cast<std::ptrdiff_t>(size_of(operand.dtype)),
          operand.dtype, strides.row, strides.column};
}

template <class T>
bool sees(const Problem<T>& problem, const Row<T>& row, std::size_t j) {
  const auto key = static_cast<std::int64_t>(j);
  if (key < row.first || key >= row.last) return false;
  if (row.mask && row.mask[key * problem.mask_strides.column] == 0) return false;
  return !row.bias ||
         row.bias[key * problem.bias_strides.column] != -std::numeric_limits<T>::infinity();
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

template void make_rows(const Problem<float>&, const Results<float>&, std::size_t, std::size_t,
                        Row<float>*);
template void make_rows(const Problem<double>&, const Results<double>&, std::size_t, std::size_t,
                        Row<double>*);
template bool sees(const Problem<float>&, const Row<float>&, std::size_t);
template bool sees(const Problem<double>&, const Row<double>&, std::size_t);

}  // namespace attn::kernel
