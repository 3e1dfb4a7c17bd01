#include "attn/report/heat_map.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"

namespace attn {
namespace {

constexpr std::size_t kMostPanels = 4096;

[[noreturn]] void usage(const std::string& text) { throw Error(ErrorKind::usage, text); }

std::size_t absolute_index(std::int64_t index, std::size_t count, const std::string& flag) {
  const auto n = static_cast<std::int64_t>(count);
  if (index < -n || index >= n)
    usage(flag + " " + std::to_string(index) + ": expected " + std::to_string(-n) + " to " +
          std::to_string(n - 1));
  return static_cast<std::size_t>(index < 0 ? index + n : index);
}

std::int64_t integer(const std::string& text, const std::string& flag, const std::string& typed) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    usage(flag + " " + printable(typed) + ": expected indices and ranges, such as 0:32,-1");
  return value;
}

/// One part of a list: "3", or "A:B" with either end open, as Python slices.
void append_part(std::vector<std::size_t>& indices, const std::string& part, std::size_t count,
                 const std::string& flag, const std::string& typed) {
  const std::size_t colon = part.find(':');
  if (colon == std::string::npos) {
    indices.push_back(absolute_index(integer(part, flag, typed), count, flag));
    return;
  }
  const auto n = static_cast<std::int64_t>(count);
  const auto bound = [&](const std::string& text, std::int64_t open) {
    const std::int64_t value = text.empty() ? open : integer(text, flag, typed);
    return std::clamp(value < 0 ? value + n : value, std::int64_t{0}, n);
  };
  const std::int64_t stop = bound(part.substr(colon + 1), n);
  for (std::int64_t i = bound(part.substr(0, colon), 0); i < stop; ++i)
    indices.push_back(static_cast<std::size_t>(i));
}

std::vector<std::size_t> places_of(const std::string& typed, std::size_t count,
                                   const std::string& flag) {
  std::vector<std::size_t> indices;
  for (std::size_t start = 0; start <= typed.size();) {
    const std::size_t comma = std::min(typed.find(',', start), typed.size());
    append_part(indices, typed.empty() ? ":" : typed.substr(start, comma - start), count, flag,
                typed);
    start = comma + 1;
  }
  if (indices.empty()) usage(flag + " " + printable(typed) + ": selects nothing to draw");
  return indices;
}

std::vector<std::string> labels_of(const std::vector<std::string>& tokens, std::size_t count,
                                   const std::vector<std::size_t>& indices) {
  std::vector<std::string> labels;
  for (const std::size_t index : indices)
    labels.push_back(tokens.size() == count ? printable(tokens[index]) : std::to_string(index));
  return labels;
}

/// A panel: its index on each axis before the last two.
struct Panels {
  std::vector<std::string> titles;
  std::vector<std::size_t> indices;  ///< index among all matrices
};

Panels panels_of(const HeatSource& source, const HeatChoice& choice, const Shape& shape) {
  const std::size_t leading = shape.size() - 2;
  const std::string names[] = {source.third_axis, "batch", "layer"};
  const std::optional<std::int64_t> picks[] = {
      source.third_axis == "head" ? choice.head : choice.batch,
      source.third_axis == "head" ? choice.batch : choice.head, choice.layer};
  const std::string flags[] = {"--" + names[0], names[0] == "head" ? "--batch" : "--head",
                               "--layer"};
  for (std::size_t i = leading; i < 3; ++i)
    if (picks[i])
      usage(flags[i] + ": " + source.name + " " + to_string(source.tensor.shape()) +
            " has no such axis");
  Panels panels{{""}, {0}};
  for (std::size_t i = 0; i < leading; ++i) {  // from the outermost axis inwards
    const std::size_t k = leading - 1 - i;
    std::vector<std::size_t> indices;
    if (picks[k])
      indices = {absolute_index(*picks[k], shape[i], flags[k])};
    else
      for (std::size_t j = 0; j < shape[i]; ++j) indices.push_back(j);
    if (panels.indices.size() * indices.size() > kMostPanels)
      throw Error(ErrorKind::data, source.name + ": expected at most " +
                                       std::to_string(kMostPanels) + " matrices, found shape " +
                                       to_string(shape) + "; choose with --layer, --batch, --head");
    Panels next;
    for (std::size_t p = 0; p < panels.indices.size(); ++p)
      for (const std::size_t index : indices) {
        const std::string title = shape[i] == 1 ? "" : names[k] + " " + std::to_string(index);
        const std::string before = panels.titles[p];
        next.titles.push_back(before.empty() || title.empty() ? before + title
                                                              : before + ", " + title);
        next.indices.push_back(panels.indices[p] * shape[i] + index);
      }
    panels = std::move(next);
  }
  return panels;
}

bool is_scores(const std::string& name) { return name.ends_with("scores"); }

/// Least and greatest value of all panels, and whether any cell is hidden.
struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool hidden = false;
};

/// `positive`: only values above 0 count for the range.
Extent extent_of(const HeatMap& map, bool positive) {
  Extent extent;
  for (const HeatPanel& panel : map.panels)
    for (std::size_t i = 0; i < map.rows(); ++i) {
      const HeatRow row = map.row(panel, i);
      for (std::size_t j = 0; j < row.values.size(); ++j) {
        const double value = row.values[j];
        extent.hidden |= row.kinds[j] == CellKind::hidden;
        if (row.kinds[j] != CellKind::value || !std::isfinite(value) || (positive && value <= 0))
          continue;
        extent.low = std::min(extent.low, value);
        extent.high = std::max(extent.high, value);
      }
    }
  return extent;
}

HeatScale scale_of(Extent range, const HeatChoice& choice, bool is_signed) {
  HeatScale scale;
  if (range.low > range.high) range = {choice.logarithmic ? 1.0 : 0.0, 1};  // no finite values
  scale.logarithmic = choice.logarithmic;
  if (choice.logarithmic) {
    scale.low = choice.low.value_or(range.low);
    scale.high = choice.high.value_or(range.high);
    if (scale.low <= 0) usage("--vmin: expected a number above 0 with --log");
    if (scale.low == scale.high && !choice.low) scale.low = scale.high / 10;
  } else {
    scale.is_signed = is_signed || range.low < 0;
    const double reach = std::max(std::abs(range.low), std::abs(range.high));
    scale.high = choice.high.value_or(scale.is_signed ? reach : range.high);
    scale.low = choice.low.value_or(scale.is_signed ? -std::abs(scale.high) : 0.0);
    if (scale.low == scale.high && !choice.high) scale.high = scale.low + 1;
  }
  if (!std::isfinite(scale.low) || !std::isfinite(scale.high) || !(scale.low < scale.high))
    usage("expected --vmin below --vmax, found " + short_number(scale.low) + " and " +
          short_number(scale.high));
  return scale;
}

Shape lifted(const HeatSource& source) {
  Shape shape = source.tensor.shape();
  while (shape.size() < 2) shape.insert(shape.begin(), 1);
  if (shape.size() > 5 || source.tensor.size() == 0)
    throw Error(ErrorKind::data, source.name + ": expected one to five axes, none of them " +
                                     "empty, found shape " + to_string(source.tensor.shape()));
  return shape;
}

constexpr double kHidden = -std::numeric_limits<double>::infinity();

std::vector<std::string> every(const std::vector<std::string>& labels, std::size_t step) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < labels.size(); i += step) kept.push_back(labels[i]);
  return kept;
}

/// Keeps the stronger of two cells of a block: NaN, so that it stays visible, otherwise the value
/// of larger magnitude, otherwise hidden.
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

double HeatScale::position(double value) const {
  if (is_signed)
    return std::clamp(0.5 + 0.5 * value / std::max(std::abs(low), std::abs(high)), 0.0, 1.0);
  if (logarithmic)
    return value <= low ? 0 : std::min(std::log(value / low) / std::log(high / low), 1.0);
  return std::clamp((value - low) / (high - low), 0.0, 1.0);
}

HeatMap make_heat_map(const HeatSource& source, const HeatChoice& choice) {
  const Shape shape = lifted(source);
  const std::size_t L = shape[shape.size() - 2], S = shape.back();
  const Shape matrices{source.tensor.size() / (L * S), L, S};
  HeatMap map;
  map.cells.rows = places_of(choice.rows, L, "--rows");
  map.cells.columns = places_of(choice.columns, S, "--cols");
  map.cells.values = source.tensor.reshaped(matrices);
  if (source.masked) map.cells.masked = source.masked->reshaped(matrices);
  map.cells.zero_is_hidden = !source.masked && source.name == "weights";
  const Panels panels = panels_of(source, choice, shape);
  for (std::size_t p = 0; p < panels.indices.size(); ++p)
    map.panels.push_back({panels.titles[p], panels.indices[p]});
  map.title = printable(source.name);
  if (!source.what.empty()) map.notes.push_back(source.what);
  if (map.panels.size() == 1 && !map.panels[0].title.empty())
    map.title += ", " + std::exchange(map.panels[0].title, "");
  map.row_axis = source.row_axis;
  map.column_axis = source.column_axis;
  map.row_labels = labels_of(source.row_tokens, L, map.cells.rows);
  map.column_labels = labels_of(source.column_tokens, S, map.cells.columns);
  const Extent extent = extent_of(map, choice.logarithmic);
  if (extent.hidden) map.hidden_means = map.cells.zero_is_hidden ? "exactly 0" : "hidden";
  map.scale = scale_of(extent, choice, source.is_signed || is_scores(source.name));
  return map;
}

std::string short_number(double value) {
  char text[32];
  const double size = std::abs(value);
  const bool plain = value == 0 || (size >= 0.001 && size < 99999.5) || !std::isfinite(value);
  const int digits = size >= 100 ? 5 : size >= 1 ? 3 : size >= 0.01 ? 2 : 1;
  const auto end =
      plain ? std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits)
            : std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, 0);
  std::string short_text(text, end.ptr);
  const std::size_t e = short_text.find('e');  // "5e-04" has a digit too many
  if (e != std::string::npos && short_text.size() == e + 4 && short_text[e + 2] == '0')
    short_text.erase(e + 2, 1);
  if (e != std::string::npos && short_text[e + 1] == '+') short_text.erase(e + 1, 1);
  return short_text;
}

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
