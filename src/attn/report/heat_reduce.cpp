// The cells of a map, and those of maps too large for what they are drawn on.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/report/heat_map.h"

namespace attn {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

std::vector<std::string> every(const std::vector<std::string>& labels, std::size_t step) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < labels.size(); i += step) kept.push_back(labels[i]);
  return kept;
}

/// Keeps the stronger of a block's cells: any value before NaN and before what is hidden, but NaN,
/// which nobody should miss, before everything.
void merge(CellKind& kind, double& value, CellKind other_kind, double other) {
  if (kind == CellKind::nan || other_kind == CellKind::hidden) return;
  if (other_kind == CellKind::nan || kind == CellKind::hidden) {
    kind = other_kind;
    value = other;
  } else if (std::abs(other) > std::abs(value)) {
    value = other;
  }
}

}  // namespace

HeatRow HeatCells::row(std::size_t matrix, std::size_t i) const {
  const std::size_t count = (columns.size() + wide - 1) / wide;
  HeatRow out{std::vector<double>(count, 0), std::vector<CellKind>(count, CellKind::hidden)};
  const auto read = [&](const Tensor& tensor, std::size_t at) {
    return cast(tensor.at(matrix).at(at), DType::f64);
  };
  for (std::size_t k = i * tall; k < std::min((i + 1) * tall, rows.size()); ++k) {
    const Tensor row = read(values, rows[k]);
    const Tensor mask = masked ? read(*masked, rows[k]) : Tensor();
    const auto numbers = row.data<double>(), masks = mask.data<double>();
    for (std::size_t to = 0, j = 0; to < count; ++to)
      for (; j < std::min((to + 1) * wide, columns.size()); ++j) {
        const double value = numbers[columns[j]];
        const bool hidden = (masked && masks[columns[j]] == kHidden) || value == kHidden ||
                            (zero_is_hidden && value == 0);
        const CellKind kind = hidden              ? CellKind::hidden
                              : std::isnan(value) ? CellKind::nan
                                                  : CellKind::value;
        merge(out.kinds[to], out.values[to], kind, kind == CellKind::value ? value : 0);
      }
  }
  return out;
}

HeatMap reduced(const HeatMap& map, std::size_t most_rows, std::size_t most_columns) {
  const std::size_t tall = (map.rows() + most_rows - 1) / most_rows;
  const std::size_t wide = (map.columns() + most_columns - 1) / most_columns;
  if (tall <= 1 && wide <= 1) return map;
  HeatMap small = map;
  small.cells.tall *= tall;
  small.cells.wide *= wide;
  small.row_labels = every(map.row_labels, tall);
  small.column_labels = every(map.column_labels, wide);
  small.notes.push_back("each cell is the strongest of " + std::to_string(tall) + " x " +
                        std::to_string(wide));
  return small;
}

}  // namespace attn
