#include "attn/explain/explain_matrix.h"

#include <algorithm>

#include "attn/base/utf8.h"
#include "attn/draw/heat_map.h"

namespace attn {
namespace {

constexpr std::size_t kMaxWhole = 6, kEdge = 3;     // rows and columns of a matrix
constexpr std::size_t kMaxTerms = 4, kLeading = 2;  // of a sum; the last term is always shown

/// Whether dots replace indices between two that are shown.
bool has_gap(std::size_t previous, std::size_t index) { return index != previous + 1; }

/// The labels of the indices that are shown, with `dots` where others are left out.
std::vector<std::string> labels_shown(const std::vector<std::string>& labels, std::size_t count,
                                      const std::vector<std::size_t>& indices, const char* dots) {
  std::vector<std::string> shown;
  if (labels.size() != count) return shown;
  std::size_t next = 0;
  for (const std::size_t i : indices) {
    if (i != next) shown.emplace_back(dots);
    shown.push_back(token_label(labels[i]));
    next = i + 1;
  }
  return shown;
}

}  // namespace

std::string token_label(const std::string& token) {
  constexpr std::size_t kWidest = 12;
  return cut_to_columns(visible_label(token), kWidest);
}

double FormulaMatrix::operator[](std::size_t index) const {
  return visit(elements.dtype(),
               [&]<class T>(Type<T>) { return static_cast<double>(elements.data<T>()[index]); });
}

bool equal(const FormulaMatrix& a, const FormulaMatrix& b) {
  const auto is_same = [](double x, double y) {
    return x == y || (std::isnan(x) && std::isnan(y));
  };
  std::size_t index = 0;
  while (index < a.size() && is_same(a[index], b[index])) ++index;
  return index == a.size();
}

FormulaMatrix matrix_of(const Tensor& tensor) {
  return {tensor.rank() < 2 ? 1 : tensor.shape()[0], tensor.shape().back(), tensor};
}

FormulaMatrix filled(std::size_t rows, std::size_t columns,
                     const std::function<double(std::size_t, std::size_t)>& at) {
  FormulaMatrix matrix{rows, columns, Tensor(DType::f64, {rows, columns})};
  std::size_t k = 0;
  for (double& element : matrix.elements.mutable_data<double>()) {
    element = at(k / columns, k % columns);
    ++k;
  }
  return matrix;
}

std::vector<std::size_t> edges(std::size_t count, const std::vector<std::size_t>& also) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < count; ++i)
    if (count <= kMaxWhole || i < kEdge || i + kEdge >= count ||
        std::find(also.begin(), also.end(), i) != also.end())
      indices.push_back(i);
  return indices;
}

Math matrix_math(const FormulaMatrix& matrix, const MatrixLabels& labels) {
  const std::vector<std::size_t> rows = edges(matrix.rows, labels.shown_rows),
                                 columns = edges(matrix.columns, labels.shown_columns);
  if (matrix.rows == 0 || matrix.columns == 0) return math::name("empty");
  std::size_t width = columns.size();  // with dots
  for (std::size_t k = 1; k < columns.size(); ++k)
    width += has_gap(columns[k - 1], columns[k]) ? 1 : 0;
  std::vector<Math> cells;
  const auto append_row = [&](const std::function<Math(std::size_t)>& cell, const char* dots) {
    for (std::size_t k = 0; k < columns.size(); ++k) {
      if (k > 0 && has_gap(columns[k - 1], columns[k])) cells.push_back(math::sign(dots));
      cells.push_back(cell(columns[k]));
    }
  };
  for (std::size_t k = 0; k < rows.size(); ++k) {
    if (k > 0 && has_gap(rows[k - 1], rows[k]))
      append_row([](std::size_t) { return math::sign("⋮"); }, "⋱");
    append_row([&](std::size_t j) { return math::number(matrix.at(rows[k], j)); }, "…");
  }
  Math result = math::matrix(std::move(cells), width);
  result.row_labels = labels_shown(labels.rows, matrix.rows, rows, "⋮");
  result.column_labels = labels_shown(labels.columns, matrix.columns, columns, "…");
  return result;
}

Math element(const std::string& name, std::size_t i, std::size_t j) {
  const auto index = [](std::size_t n) { return math::number(static_cast<double>(n)); };
  return math::subscript(math::name(name), math::row({index(i), math::sign(","), index(j)}));
}

Math sum(std::size_t count, const std::function<Math(std::size_t)>& term,
         const std::vector<std::size_t>& also) {
  std::vector<Math> parts;
  std::size_t next = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const bool is_shown = count <= kMaxTerms || k < kLeading || k + 1 == count ||
                          std::find(also.begin(), also.end(), k) != also.end();
    if (!is_shown) continue;
    if (k > 0) parts.push_back(math::sign("+"));
    if (k > next) {
      parts.push_back(math::sign("…"));
      parts.push_back(math::sign("+"));
    }
    parts.push_back(term(k));
    next = k + 1;
  }
  return parts.empty() ? math::number(0) : math::row(std::move(parts));
}

Math product(double a, double b) {
  return math::row({math::factor(a), math::sign("·"), math::factor(b)});
}

}  // namespace attn
