#include "attn/draw/heat_map.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/kernel/thread_pool.h"

namespace attn {
namespace {

constexpr std::size_t kMaxPanels = 4096;

/// The elements of an axis. The user selects them by their positions, or by their numbers, which
/// layers of a model have.
struct AxisElements {
  std::size_t count = 0;
  std::vector<std::int64_t> numbers = {};  ///< empty: 0, 1, ...
};

/// "3, 7, or -2 to -1"
std::string listed(const std::vector<std::int64_t>& numbers) {
  constexpr std::size_t kMost = 10;
  const std::span<const std::int64_t> first(numbers.data(), std::min(numbers.size(), kMost));
  const std::string least = std::to_string(-static_cast<std::int64_t>(numbers.size()));
  return join(first, ", ", [](std::int64_t number) { return std::to_string(number); }) +
         (numbers.size() > kMost ? ", ..." : "") + ", or " +
         (numbers.size() > 1 ? least + " to " : "") + "-1";
}

std::size_t index_of(std::int64_t number, const AxisElements& elements, const std::string& flag) {
  const auto n = static_cast<std::int64_t>(elements.count);
  const std::vector<std::int64_t>& numbers = elements.numbers;
  if (number < 0 && number >= -n) return static_cast<std::size_t>(number + n);
  if (numbers.empty() && number >= 0 && number < n) return static_cast<std::size_t>(number);
  const auto found = std::find(numbers.begin(), numbers.end(), number);
  if (found == numbers.end())
    fail_usage(
        flag + " " + std::to_string(number) + ": expected " +
        (numbers.empty() ? std::to_string(-n) + " to " + std::to_string(n - 1) : listed(numbers)));
  return static_cast<std::size_t>(found - numbers.begin());
}

std::int64_t integer(const std::string& text, const std::string& flag, const std::string& typed) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail_usage(flag + " " + printable(typed) + ": expected indices and ranges, such as 0:32,-1");
  return value;
}

/// One part of a list: "3", or "A:B" with either end open. Positions are sliced as in Python;
/// numbered layers are those with A <= number < B. Negative ones count from the end of the axis.
void append_part(std::vector<std::size_t>& indices, const std::string& part,
                 const AxisElements& elements, const std::string& flag, const std::string& typed) {
  const std::size_t colon = part.find(':');
  if (colon == std::string::npos) {
    indices.push_back(index_of(integer(part, flag, typed), elements, flag));
    return;
  }
  const std::vector<std::int64_t>& numbers = elements.numbers;
  if (!numbers.empty()) {
    const auto end = [&](const std::string& text, std::int64_t open) {
      const std::int64_t number = text.empty() ? open : integer(text, flag, typed);
      if (number < -static_cast<std::int64_t>(numbers.size()))  // before all
        return std::numeric_limits<std::int64_t>::min();
      return number < 0 ? numbers[index_of(number, elements, flag)] : number;
    };
    const std::int64_t first = end(part.substr(0, colon), 0);
    const std::int64_t last = end(part.substr(colon + 1), std::numeric_limits<std::int64_t>::max());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i] >= first && numbers[i] < last) indices.push_back(i);
    return;
  }
  const auto n = static_cast<std::int64_t>(elements.count);
  const auto bound = [&](const std::string& text, std::int64_t open) {
    const std::int64_t value = text.empty() ? open : integer(text, flag, typed);
    return std::clamp(value < 0 ? value + n : value, std::int64_t{0}, n);
  };
  const std::int64_t stop = bound(part.substr(colon + 1), n);
  for (std::int64_t i = bound(part.substr(0, colon), 0); i < stop; ++i)
    indices.push_back(static_cast<std::size_t>(i));
}

std::vector<std::size_t> selected_indices(const std::string& typed, const AxisElements& elements,
                                          const std::string& flag) {
  std::vector<std::size_t> indices;
  for (std::size_t start = 0; start <= typed.size();) {
    const std::size_t comma = std::min(typed.find(',', start), typed.size());
    append_part(indices, typed.empty() ? ":" : typed.substr(start, comma - start), elements, flag,
                typed);
    start = comma + 1;
  }
  if (indices.empty()) fail_usage(flag + " " + printable(typed) + ": selects nothing to draw");
  return indices;
}

std::vector<std::string> labels_of(const std::vector<std::string>& tokens, std::size_t count,
                                   const std::vector<std::size_t>& indices) {
  std::vector<std::string> labels;
  for (const std::size_t index : indices)
    labels.push_back(tokens.size() == count ? visible_label(tokens[index]) : std::to_string(index));
  return labels;
}

/// What the user picked of an axis before the last two.
const std::string& picked_of(const std::string& axis, const HeatChoice& choice) {
  static const std::string none;
  return axis == "head"    ? choice.head
         : axis == "batch" ? choice.batch
         : axis == "layer" ? choice.layer
                           : none;
}

/// The panels of all combinations of indices. A name contains the innermost axis of which several
/// indices are drawn, and axes after it; a group contains the axes before it.
std::vector<HeatPanel> panels_of(const HeatSource& source, const HeatChoice& choice,
                                 const Shape& shape) {
  const std::size_t leading = shape.size() - 2;
  const LeadingAxes& axes = source.leading_axes;
  const auto end = axes.begin() + static_cast<std::ptrdiff_t>(leading);
  for (const std::string& axis : kLeadingAxes)
    if (!picked_of(axis, choice).empty() && std::find(axes.begin(), end, axis) == end)
      fail_usage("--" + axis + ": " + source.name + " " + to_string(source.tensor.shape()) +
                 (axis + "s" == source.row_axis
                      ? " has its " + axis + "s in rows, which are all drawn"
                      : " has no such axis"));
  std::vector<AxisElements> elements(leading);
  std::vector<std::vector<std::size_t>> indices(leading);
  for (std::size_t k = 0; k < leading; ++k) {
    elements[k].count = shape[leading - 1 - k];
    if (axes[k] == "layer") elements[k].numbers = source.layers;
    indices[k] = selected_indices(picked_of(axes[k], choice), elements[k], "--" + axes[k]);
  }
  std::size_t named = 0;
  while (named + 1 < leading && indices[named].size() == 1) ++named;
  std::vector<HeatPanel> panels{{}};
  for (std::size_t k = leading; k-- > 0;) {  // from the outermost axis inwards
    if (panels.size() * indices[k].size() > kMaxPanels)
      fail_data(source.name + ": expected at most " + std::to_string(kMaxPanels) +
                " matrices, found shape " + to_string(shape) +
                "; choose with --layer, --batch, --head");
    const auto& [count, numbers] = elements[k];
    std::vector<HeatPanel> next;
    for (const HeatPanel& panel : panels)
      for (const std::size_t index : indices[k]) {
        HeatPanel more = panel;
        more.matrix = panel.matrix * count + index;
        if (axes[k] == "layer" && !numbers.empty()) more.layer = numbers[index];
        std::string& title = k > named ? more.group : more.name;
        if (count > 1 || !numbers.empty())
          title += (title.empty() ? "" : ", ") + axes[k] + " " +
                   (numbers.empty() ? std::to_string(index) : std::to_string(numbers[index]));
        next.push_back(std::move(more));
      }
    panels = std::move(next);
  }
  return panels;
}

/// Least and greatest value of all panels, and which kinds of cells they have.
struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  std::array<bool, 4> kinds = {};
  bool has(CellKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }

  /// `positive`: only values above 0 count for the range.
  void add(const HeatRow& row, bool positive) {
    const double most = std::numeric_limits<double>::max(), least = positive ? 0 : -most;
    double row_low = low, row_high = high;  // in registers
    unsigned found = 0;
    for (std::size_t j = 0; j < row.values.size(); ++j) {
      const double value = row.values[j];
      found |= 1u << static_cast<unsigned>(row.kinds[j]);
      if (row.kinds[j] != CellKind::value || !(value <= most) || value < least) continue;
      if (positive && value == 0) continue;
      row_low = std::min(row_low, value);
      row_high = std::max(row_high, value);
    }
    low = row_low;
    high = row_high;
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) kinds[kind] |= (found >> kind & 1) != 0;
  }
  void add(const Extent& more) {
    low = std::min(low, more.low);
    high = std::max(high, more.high);
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) kinds[kind] |= more.kinds[kind];
  }
};

Extent extent_of(const HeatMap& map, bool positive, std::size_t threads) {
  kernel::ThreadPool pool(threads);
  std::vector<Extent> extents(threads);
  pool.run(map.panels.size(), threads, [&](std::size_t p, std::size_t worker) {
    for (std::size_t i = 0; i < map.rows(); ++i)
      extents[worker].add(map.row(map.panels[p], i), positive);
  });
  for (const Extent& extent : extents) extents[0].add(extent);
  return extents[0];
}

HeatScale scale_of(Extent range, const HeatChoice& choice, bool is_signed, std::size_t columns) {
  constexpr std::size_t kMostLinear = 64;  // columns, unless the user chooses
  HeatScale scale;
  if (range.low > range.high) range = {choice.logarithmic ? 1.0 : 0.0, 1};  // no finite values
  if (choice.logarithmic) {
    scale.curve = Curve::logarithmic;
    scale.low = choice.low.value_or(range.low);
    scale.high = choice.high.value_or(range.high);
    if (scale.low <= 0) fail_usage("--vmin: expected a number above 0 with --log");
    if (scale.low == scale.high && !choice.low) scale.low = scale.high / 10;
  } else {
    scale.is_signed = is_signed || range.low < 0;
    if (!scale.is_signed && !choice.linear && columns > kMostLinear) scale.curve = Curve::root;
    const double reach = std::max(std::abs(range.low), std::abs(range.high));
    scale.high = choice.high.value_or(scale.is_signed ? reach : range.high);
    scale.low = choice.low.value_or(scale.is_signed ? -std::abs(scale.high) : 0.0);
    if (scale.low == scale.high && !choice.high) scale.high = scale.low + 1;
  }
  if (!std::isfinite(scale.low) || !std::isfinite(scale.high) || !(scale.low < scale.high))
    fail_usage("expected --vmin below --vmax, found " + short_number(scale.low) + " and " +
               short_number(scale.high));
  return scale;
}

Shape at_least_2d(const HeatSource& source) {
  Shape shape = source.tensor.shape();
  while (shape.size() < 2) shape.insert(shape.begin(), 1);
  if (shape.size() > 5 || source.tensor.size() == 0)
    fail_data(source.name + ": expected one to five axes, none of them " + "empty, found shape " +
              to_string(source.tensor.shape()));
  return shape;
}

constexpr double kHidden = -std::numeric_limits<double>::infinity();

std::vector<std::string> every_nth(const std::vector<std::string>& labels, std::size_t step) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < labels.size(); i += step) kept.push_back(labels[i]);
  return kept;
}

/// Keeps the stronger of two cells of a block: NaN, so that it stays visible, then the value of
/// larger magnitude, then zero, then hidden.
void merge(CellKind& kind, double& value, CellKind other_kind, double other) {
  const auto strength = [](CellKind cell) {
    return cell == CellKind::nan ? 3 : cell == CellKind::value ? 2 : cell == CellKind::zero ? 1 : 0;
  };
  const int before = strength(kind), after = strength(other_kind);
  if (after > before || (after == before && std::abs(other) > std::abs(value))) {
    kind = other_kind;
    value = other;
  }
}

/// The value of each of the 65,536 numbers of a 16-bit format. A look-up is faster than a
/// conversion.
template <class Float16>
const std::vector<float>& values_of_bits() {
  static const std::vector<float> values = [] {
    std::vector<float> all(std::size_t{1} << 16);
    Float16 number;
    for (std::size_t bits = 0; bits < all.size(); ++bits) {
      number.bits = static_cast<std::uint16_t>(bits);
      all[bits] = static_cast<float>(number);
    }
    return all;
  }();
  return values;
}

/// A row of a tensor (matrices, rows, columns).
std::vector<double> numbers_of(const Tensor& tensor, std::size_t matrix, std::size_t row) {
  const std::size_t count = tensor.shape()[2], first = (matrix * tensor.shape()[1] + row) * count;
  std::vector<double> numbers(count);
  visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto from = tensor.data<T>().subspan(first, count);
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      const std::vector<float>& of_bits = values_of_bits<T>();
      std::transform(from.begin(), from.end(), numbers.begin(),
                     [&](T value) { return double{of_bits[value.bits]}; });
    } else {
      std::transform(from.begin(), from.end(), numbers.begin(),
                     [](T value) { return static_cast<double>(value); });
    }
  });
  return numbers;
}

}  // namespace

std::string_view name_of(Curve curve) {
  return curve == Curve::logarithmic ? "log scale"
         : curve == Curve::root      ? "square-root scale"
                                     : "";
}

double HeatScale::position(double value) const {
  if (is_signed)
    return std::clamp(0.5 + 0.5 * value / std::max(std::abs(low), std::abs(high)), 0.0, 1.0);
  if (curve == Curve::logarithmic && value <= low) return 0;
  return std::clamp(share(value), 0.0, 1.0);
}

namespace {

double on_curve(Curve curve, double value) {
  return curve == Curve::logarithmic ? std::log(value)
         : curve == Curve::root      ? std::copysign(std::sqrt(std::abs(value)), value)
                                     : value;
}

}  // namespace

double HeatScale::share(double value) const {
  const double first = on_curve(curve, low);
  return (on_curve(curve, value) - first) / (on_curve(curve, high) - first);
}

double HeatScale::value_at(double share) const {
  const double at = std::lerp(on_curve(curve, low), on_curve(curve, high), share);
  return curve == Curve::logarithmic ? std::exp(at) : curve == Curve::root ? at * std::abs(at) : at;
}

namespace {

/// All elements are read before anything is drawn. Errors: data, if there are too many.
void require_drawable(const HeatMap& map) {
  constexpr double kMost = 0x1p33;
  const double elements = static_cast<double>(map.panels.size()) *
                          static_cast<double>(map.cells.rows.size()) *
                          static_cast<double>(map.cells.columns.size());
  if (elements <= kMost) return;
  char count[64];
  std::snprintf(count, sizeof count, "%.0f", elements);
  fail_data({.subject = map.title,
             .expected = "at most 8589934592 elements to draw",
             .found = count,
             .hint = "--rows, --cols and --head select some"});
}

/// "layers 0 to 3", "layers 2, 5" or "layer 1"; "" if their numbers are unknown.
std::string layers_text(const std::vector<HeatPanel>& panels) {
  constexpr std::size_t kListed = 4;
  std::vector<std::int64_t> layers;
  for (const HeatPanel& panel : panels)
    if (panel.layer && (layers.empty() || layers.back() != *panel.layer))
      layers.push_back(*panel.layer);
  if (layers.empty()) return "";
  if (layers.size() == 1) return "layer " + std::to_string(layers[0]);
  const auto count = static_cast<std::int64_t>(layers.size());
  const bool is_range =
      std::is_sorted(layers.begin(), layers.end()) && layers.back() - layers[0] == count - 1;
  if (is_range && count > 2)
    return "layers " + std::to_string(layers[0]) + " to " + std::to_string(layers.back());
  if (layers.size() > kListed) return std::to_string(count) + " layers";
  std::string text = "layers ";
  for (const std::int64_t layer : layers)
    text += (layer == layers[0] ? "" : ", ") + std::to_string(layer);
  return text;
}

/// "weights", "weights, head 3", "layers 0 to 3", "layer 1, head 3".
std::string title_of(const HeatSource& source, const std::vector<HeatPanel>& panels) {
  // Without a key the name is that of the file.
  const std::string name = source.series ? *source.series
                           : source.key.empty()
                               ? std::filesystem::path(source.name).filename().string()
                               : source.name;
  const std::string drawn = panels.size() == 1 ? panels[0].title()
                            : source.series    ? layers_text(panels)
                                               : "";
  return printable(name + (name.empty() || drawn.empty() ? "" : ", ") + drawn);
}

}  // namespace

std::string visible_label(const std::string& token) {
  if (token.empty()) return "\"\"";
  const std::size_t first = std::min(token.find_first_not_of(' '), token.size());
  const std::size_t end = token.find_last_not_of(' ') + 1;
  std::string label;
  for (std::size_t i = 0; i < first; ++i) label += "␣";
  label += printable(token.substr(first, std::max(first, end) - first));
  for (std::size_t i = std::max(first, end); i < token.size(); ++i) label += "␣";
  return label;
}

HeatMap make_heat_map(const HeatSource& source, const HeatChoice& choice, std::size_t threads) {
  const Shape shape = at_least_2d(source);
  const std::size_t L = shape[shape.size() - 2], S = shape.back();
  const Shape matrices{source.tensor.size() / (L * S), L, S};
  HeatMap map;
  map.cells.rows = selected_indices(choice.rows, {L}, "--rows");
  map.cells.columns = selected_indices(choice.columns, {S}, "--cols");
  map.cells.values = source.tensor.reshaped(matrices);
  if (source.masked) map.cells.masked = source.masked->reshaped(matrices);
  map.cells.mark = source.masks_zeros ? CellKind::zero : CellKind::hidden;
  if (!source.masked) map.cells.visible = source.visible;
  map.cells.marks_zeros = !source.masked && !source.visible && source.zero_is_hidden;
  map.panels = panels_of(source, choice, shape);
  map.title = title_of(source, map.panels);
  require_drawable(map);
  if (!source.description.empty()) map.notes.push_back(source.description);
  if (map.panels.size() == 1) map.panels[0].group = map.panels[0].name = "";
  map.row_axis = source.row_axis;
  map.column_axis = source.column_axis;
  map.row_labels = labels_of(source.row_tokens, L, map.cells.rows);
  map.column_labels = labels_of(source.column_tokens, S, map.cells.columns);
  const Extent extent = extent_of(map, choice.logarithmic, threads);
  map.has_hidden = extent.has(CellKind::hidden);
  map.has_zeros = extent.has(CellKind::zero);
  map.has_nans = extent.has(CellKind::nan);
  map.scale = scale_of(extent, choice, source.is_signed, map.columns());
  map.has_chosen_limits = choice.low || choice.high;
  return map;
}

std::vector<std::size_t> group_ends(const HeatMap& map) {
  std::vector<std::size_t> ends;
  for (std::size_t p = 1; p <= map.panels.size(); ++p)
    if (p == map.panels.size() || map.panels[p].group != map.panels[p - 1].group) ends.push_back(p);
  return ends;
}

std::size_t round_step(double least) {
  std::size_t step = 1;
  for (std::size_t i = 0; static_cast<double>(step) < least; ++i)
    step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

std::string short_number(double value) {
  char text[32];
  const double size = std::abs(value);
  const bool plain = value == 0 || (size >= 0.00095 && size < 99999.5) || !std::isfinite(value);
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
  if (tall == 1 && wide == 1) return cells_of(matrix, rows[i]);
  const std::size_t count = (columns.size() + wide - 1) / wide;
  HeatRow out{std::vector<double>(count, 0), std::vector<CellKind>(count, CellKind::hidden)};
  for (std::size_t k = i * tall; k < std::min((i + 1) * tall, rows.size()); ++k)
    merge_row(out, cells_of(matrix, rows[k]), wide);
  return out;
}

namespace {

/// For each of S keys, whether none of the ranges has it.
std::vector<bool> hidden_keys(const std::vector<VisibleRanges::Range>& visible, std::size_t S) {
  std::vector<bool> hidden(S, true);
  for (const auto& [begin, end] : visible)
    for (std::size_t key = begin; key < end; ++key) hidden[key] = false;
  return hidden;
}

}  // namespace

HeatRow HeatCells::cells_of(std::size_t matrix, std::size_t row) const {
  const std::vector<double> numbers = numbers_of(values, matrix, row);
  const std::vector<double> masks = masked ? numbers_of(*masked, matrix, row) : numbers;
  const bool has_mask = masked.has_value();
  const std::vector<bool> unseen = visible ? hidden_keys(visible->of(matrix, row), numbers.size())
                                           : std::vector<bool>(numbers.size());
  HeatRow out{std::vector<double>(columns.size()), std::vector<CellKind>(columns.size())};
  for (std::size_t j = 0; j < columns.size(); ++j) {
    const double value = numbers[columns[j]];
    const CellKind kind = has_mask && masks[columns[j]] == kHidden ? mark
                          : unseen[columns[j]]                     ? CellKind::hidden
                          : value == kHidden                       ? CellKind::hidden
                          : marks_zeros && value == 0              ? CellKind::zero
                          : std::isnan(value)                      ? CellKind::nan
                                                                   : CellKind::value;
    out.kinds[j] = kind;
    out.values[j] = kind == CellKind::value ? value : 0;
  }
  return out;
}

void merge_row(HeatRow& blocks, const HeatRow& row, std::size_t wide) {
  for (std::size_t to = 0, j = 0; to < blocks.kinds.size(); ++to) {
    CellKind kind = blocks.kinds[to];
    double value = blocks.values[to];
    for (const std::size_t end = std::min(j + wide, row.kinds.size()); j < end; ++j) {
      if (kind != row.kinds[j])
        merge(kind, value, row.kinds[j], row.values[j]);
      else if (std::abs(row.values[j]) > std::abs(value))
        value = row.values[j];
    }
    blocks.kinds[to] = kind;
    blocks.values[to] = value;
  }
}

HeatMap reduced(const HeatMap& map, std::size_t max_rows, std::size_t max_columns) {
  const std::size_t tall = (map.rows() + max_rows - 1) / max_rows;
  const std::size_t wide = (map.columns() + max_columns - 1) / max_columns;
  if (tall <= 1 && wide <= 1) return map;
  HeatMap small = map;
  small.cells.tall *= tall;
  small.cells.wide *= wide;
  small.row_labels = every_nth(map.row_labels, tall);
  small.column_labels = every_nth(map.column_labels, wide);
  small.notes.push_back(std::string("each cell shows the ") +
                        (map.scale.is_signed ? "value of largest magnitude" : "largest value") +
                        " of a block of " + std::to_string(tall) + " x " + std::to_string(wide));
  return small;
}

}  // namespace attn
