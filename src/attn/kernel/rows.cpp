#include "attn/kernel/rows.h"

#include <limits>

namespace attn::kernel {
namespace {

std::ptrdiff_t offset_of(const Strides& strides, std::size_t batch, std::size_t head,
                         std::int64_t row) {
  return static_cast<std::int64_t>(batch) * strides.batch +
         static_cast<std::int64_t>(head) * strides.head + row * strides.row;
}

template <class T>
Row<T> make_row(const Problem<T>& problem, const Results<T>& results, std::size_t b, std::size_t h,
                std::size_t l) {
  const auto query = static_cast<std::int64_t>(l);
  Row<T> row;
  row.place = problem.places
                  ? problem.places[static_cast<std::int64_t>(b) * problem.places_batch + query]
                  : Place{0, static_cast<std::int64_t>(problem.S), 0, false};
  if (problem.sinks && !row.place.padding) row.sink = problem.sinks[h];
  for (std::size_t m = 0; m < problem.masks.size(); ++m)
    if (const Mask& mask = problem.masks[m]; mask.data)
      row.masks[m] = mask.data + offset_of(mask.strides, b, h, query);
  for (std::size_t m = 0; m < problem.biases.size(); ++m)
    if (const Bias<T>& bias = problem.biases[m]; bias.data)
      row.biases[m] = bias.data + offset_of(bias.strides, b, h, query);
  if (const Bias<T>& distances = problem.distances; distances.data)
    row.distances = distances.data + offset_of(distances.strides, b, h, 0) - row.place.center;
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
  if (key < row.place.first || key >= row.place.last) return false;
  for (std::size_t m = 0; m < row.masks.size(); ++m) {
    const Mask& mask = problem.masks[m];
    if (row.masks[m] && (row.masks[m][key * mask.strides.column] != 0) == mask.hides) return false;
  }
  for (std::size_t m = 0; m < row.biases.size(); ++m)
    if (row.biases[m] && row.biases[m][key * problem.biases[m].strides.column] ==
                             -std::numeric_limits<T>::infinity())
      return false;
  return true;
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
