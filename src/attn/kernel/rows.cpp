#include "attn/kernel/rows.h"

#include <limits>

namespace attn::kernel {
namespace {

std::ptrdiff_t offset_of(const Strides& strides, std::size_t batch, std::size_t head) {
  return static_cast<std::int64_t>(batch) * strides.batch +
         static_cast<std::int64_t>(head) * strides.head;
}

/// Row 0 of a head, from which the others are derived.
template <class T>
Row<T> first_row(const AttentionProblem<T>& problem, const Results<T>& results, std::size_t b,
                 std::size_t h) {
  Row<T> row;
  for (std::size_t m = 0; m < problem.masks.size(); ++m)
    if (const Mask& mask = problem.masks[m]; mask.data)
      row.masks[m] = mask.data + offset_of(mask.strides, b, h);
  for (std::size_t m = 0; m < problem.biases.size(); ++m)
    if (const Bias<T>& bias = problem.biases[m]; bias.data)
      row.biases[m] = bias.data + offset_of(bias.strides, b, h);
  if (problem.distances.data)
    row.distances = problem.distances.data + offset_of(problem.distances.strides, b, h);
  if (problem.dropout.data)
    row.dropout = problem.dropout.data + offset_of(problem.dropout.strides, b, h);
  if (problem.sinks) row.sink = problem.sinks[h];
  if (problem.head_scales) row.head_scale = problem.head_scales[h];
  row.query = matrix_of(problem.q, b, h).data;
  if (results.context) row.context = results.context + offset_of(results.context_strides, b, h);
  return row;
}

/// Sets fields one by one: a vector copy would stall on fields that were just stored.
template <class T>
void set_row(const AttentionProblem<T>& problem, const Results<T>& results, const Row<T>& head,
             std::int64_t query_bytes, const KeyRange& range, std::size_t l, Row<T>& row) {
  const auto query = static_cast<std::int64_t>(l);
  row.range.begin = range.begin, row.range.end = range.end;
  row.range.center = range.center, row.range.padding = range.padding;
  row.sink = range.padding ? -std::numeric_limits<T>::infinity() : head.sink;
  row.head_scale = head.head_scale;
  for (std::size_t m = 0; m < problem.masks.size(); ++m)
    row.masks[m] = head.masks[m] ? head.masks[m] + query * problem.masks[m].strides.row : nullptr;
  for (std::size_t m = 0; m < problem.biases.size(); ++m)
    row.biases[m] =
        head.biases[m] ? head.biases[m] + query * problem.biases[m].strides.row : nullptr;
  row.distances = head.distances ? head.distances - range.center : nullptr;
  row.dropout = head.dropout ? head.dropout + query * problem.dropout.strides.row : nullptr;
  row.query = head.query + query * query_bytes;
  row.context = head.context ? head.context + query * results.context_strides.row : nullptr;
}

}  // namespace

template <class T>
void make_rows(const AttentionProblem<T>& problem, const Results<T>& results, std::size_t first,
               std::size_t count, Row<T>* rows) {
  const KeyRange everything{0, static_cast<std::int64_t>(problem.S), 0, false};
  for (std::size_t i = 0; i < count;) {
    const std::size_t bh = (first + i) / problem.L, b = bh / problem.H, h = bh % problem.H;
    const Row<T> head = first_row(problem, results, b, h);
    const auto query_bytes =
        problem.q.strides.row * static_cast<std::int64_t>(size_of(problem.q.dtype));
    const KeyRange* key_ranges =
        problem.key_ranges
            ? problem.key_ranges + static_cast<std::int64_t>(b) * problem.key_ranges_batch
            : nullptr;
    for (std::size_t l = (first + i) % problem.L; l < problem.L && i < count; ++l, ++i)
      set_row(problem, results, head, query_bytes, key_ranges ? key_ranges[l] : everything, l,
              rows[i]);
  }
}

Matrix matrix_of(const Operand& operand, std::size_t batch, std::size_t head) {
  const Strides& strides = operand.strides;
  if (operand.data == nullptr) return {nullptr, operand.dtype};
  Matrix matrix{
      static_cast<const std::byte*>(operand.data) +
          offset_of(strides, batch, head) * static_cast<std::ptrdiff_t>(size_of(operand.dtype)),
      operand.dtype, strides.row, strides.column};
  if (operand.rows == nullptr) return matrix;
  const std::int64_t first_row = static_cast<std::int64_t>(batch) * operand.rows_batch;
  matrix.rows = operand.rows + first_row;
  if (const Decoding& decoding = operand.decoding; decoding.is_used) {
    const std::int64_t first = static_cast<std::int64_t>(head) * decoding.head;
    matrix.decoding = &decoding;
    if (decoding.starts) matrix.starts = decoding.starts + first_row;
    if (decoding.factors) matrix.factors = decoding.factors + first;
    if (decoding.zeros) matrix.zeros = decoding.zeros + first;
  }
  if (operand.rest)
    matrix.rest = operand.rest.get(), matrix.width = operand.width, matrix.batch = batch,
    matrix.head = head;
  return matrix;
}

template <class T>
bool sees(const AttentionProblem<T>& problem, const Row<T>& row, std::size_t j) {
  const auto key = static_cast<std::int64_t>(j);
  if (key < row.range.begin || key >= row.range.end) return false;
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

template <class T>
T dropout_factor(const AttentionProblem<T>& problem, const Row<T>& row, std::size_t j) {
  if (row.dropout == nullptr) return 1;
  const Mask& mask = problem.dropout;
  const bool is_set = row.dropout[static_cast<std::int64_t>(j) * mask.strides.column] != 0;
  return is_set == mask.hides ? T(0) : problem.dropout_factor;
}

namespace {

/// The element before it is decoded.
double stored_element(const Matrix& matrix, std::ptrdiff_t row, std::size_t j) {
  if (matrix.decoding && matrix.decoding->code != Code::none) {
    double number = 0;
    decode(matrix.decoding->code, reinterpret_cast<const std::uint8_t*>(matrix.data) + row, j, 1,
           &number);
    return number;
  }
  const std::ptrdiff_t at = row + static_cast<std::int64_t>(j) * matrix.column;
  switch (matrix.dtype) {
    case DType::f64:
      return reinterpret_cast<const double*>(matrix.data)[at];
    case DType::f16:
      return double(reinterpret_cast<const Half*>(matrix.data)[at]);
    case DType::bf16:
      return double(reinterpret_cast<const BFloat16*>(matrix.data)[at]);
    case DType::i8:
      return reinterpret_cast<const std::int8_t*>(matrix.data)[at];
    case DType::u8:
      return reinterpret_cast<const std::uint8_t*>(matrix.data)[at];
    default:
      return double(reinterpret_cast<const float*>(matrix.data)[at]);
  }
}

}  // namespace

template <class T>
T element(const Matrix& matrix, std::size_t i, std::size_t j) {
  if (matrix.rest != nullptr && j >= matrix.width)
    return element<T>(matrix_of(*matrix.rest, matrix.batch, matrix.head), i, j - matrix.width);
  const std::ptrdiff_t row =
      matrix.rows ? matrix.rows[i] : static_cast<std::int64_t>(i) * matrix.row;
  if (row < 0) return 0;
  const auto stored = static_cast<T>(stored_element(matrix, row, j));
  if (matrix.factors == nullptr) return stored;
  const auto at = first_factor(matrix, i) + static_cast<std::int64_t>(j / matrix.decoding->columns);
  const T zero = matrix.zeros ? static_cast<T>(matrix.zeros[at]) : T(0);
  return (stored - zero) * static_cast<T>(matrix.factors[at]);
}

template void make_rows(const AttentionProblem<float>&, const Results<float>&, std::size_t,
                        std::size_t, Row<float>*);
template void make_rows(const AttentionProblem<double>&, const Results<double>&, std::size_t,
                        std::size_t, Row<double>*);
template float element<float>(const Matrix&, std::size_t, std::size_t);
template double element<double>(const Matrix&, std::size_t, std::size_t);
template bool sees(const AttentionProblem<float>&, const Row<float>&, std::size_t);
template bool sees(const AttentionProblem<double>&, const Row<double>&, std::size_t);
template float dropout_factor(const AttentionProblem<float>&, const Row<float>&, std::size_t);
template double dropout_factor(const AttentionProblem<double>&, const Row<double>&, std::size_t);

}  // namespace attn::kernel
