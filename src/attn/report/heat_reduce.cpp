// Maps too large for what they are drawn on.
#include <cmath>

#include "attn/report/heat_map.h"

namespace attn {
namespace {

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

HeatPanel reduced_panel(const HeatPanel& panel, const HeatMap& map, std::size_t tall,
                        std::size_t wide) {
  const std::size_t rows = (map.rows() + tall - 1) / tall;
  const std::size_t columns = (map.columns() + wide - 1) / wide;
  HeatPanel out{panel.title, std::vector<double>(rows * columns, 0),
                std::vector<CellKind>(rows * columns, CellKind::hidden), panel.place};
  for (std::size_t i = 0; i < map.rows(); ++i)
    for (std::size_t j = 0; j < map.columns(); ++j) {
      const std::size_t to = i / tall * columns + j / wide, from = i * map.columns() + j;
      merge(out.kinds[to], out.values[to], panel.kinds[from], panel.values[from]);
    }
  return out;
}

}  // namespace

HeatMap reduced(const HeatMap& map, std::size_t most_rows, std::size_t most_columns) {
  const std::size_t tall = (map.rows() + most_rows - 1) / most_rows;
  const std::size_t wide = (map.columns() + most_columns - 1) / most_columns;
  if (tall <= 1 && wide <= 1) return map;
  HeatMap small = map;
  for (std::size_t p = 0; p < map.panels.size(); ++p)
    small.panels[p] = reduced_panel(map.panels[p], map, tall, wide);
  small.row_labels = every(map.row_labels, tall);
  small.column_labels = every(map.column_labels, wide);
  small.notes.push_back("each cell is the strongest of " + std::to_string(tall) + " x " +
                        std::to_string(wide));
  return small;
}

}  // namespace attn
