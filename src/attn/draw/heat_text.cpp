#include "attn/draw/heat_text.h"

#include <algorithm>
#include <cmath>

#include "attn/base/utf8.h"

namespace attn {
namespace {

constexpr std::size_t kValueCell = 6;     // columns of a number and a space, "-0.25 ", or more
constexpr std::size_t kTallestLabel = 8;  // lines of a vertical column label
constexpr std::size_t kWidestLabel = 14;  // columns of a row label; of several panels:
constexpr std::size_t kWidestGridLabel = 8;
constexpr std::size_t kMostLarge = 16;  // panels; more are drawn with fewer columns:
constexpr std::size_t kSmallPanel = 12;
constexpr std::size_t kWidestTick = 10;  // columns of a label of every n-th column
constexpr std::size_t kBetweenPanels = 2;
constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};
constexpr const char* kNegativeShades[] = {"·", "-", "=", "≡", "#"};

using Lines = std::vector<std::string>;

/// The measures of a panel, the same for all. Row labels are left of the first panel of a line.
struct Measures {
  std::size_t label = 0;     ///< columns of the row labels and the space after them
  std::size_t cell = 1;      ///< columns of a cell
  bool has_numbers = false;  ///< cells are wide enough for their numbers
  std::size_t panel = 1;     ///< columns of a panel: its cells or its name
  bool half_blocks = false;  ///< two rows per line
};

std::string centred(const std::string& text, std::size_t columns) {
  const std::size_t width = columns_of(text);
  return left_aligned(std::string(columns > width ? (columns - width) / 2 : 0, ' ') + text,
                      columns);
}

std::string repeated(const std::string& text, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

ColourMap colours_of(const HeatMap& map) {
  return map.scale.is_signed ? ColourMap::diverging_night : ColourMap::night;
}

enum class Plane { foreground, background };

/// The escape sequence for the colour at a position of the map's colours.
std::string switched(Plane plane, const HeatMap& map, double position, TerminalColours colours) {
  const std::string start = plane == Plane::foreground ? "\x1b[38;" : "\x1b[48;";
  if (colours == TerminalColours::palette_256)
    return start + "5;" + std::to_string(palette_256(colours_of(map), position)) + "m";
  const Rgb colour = colour_at(colours_of(map), position);
  return start + "2;" + std::to_string(colour.red) + ";" + std::to_string(colour.green) + ";" +
         std::to_string(colour.blue) + "m";
}

/// Black or white text on the colour at this position.
std::string switched_ink(const HeatMap& map, double position, TerminalColours colours) {
  const Rgb background = colours == TerminalColours::palette_256
                             ? entry_of_256(palette_256(colours_of(map), position))
                             : colour_at(colours_of(map), position);
  constexpr const char *kBlack = "\x1b[38;5;16m", *kWhite = "\x1b[38;5;231m";
  return ink_on(background) == Rgb{0, 0, 0} ? kBlack : kWhite;
}

constexpr const char* kPlain = "\x1b[0m";

/// A cell without colour. Lines are used for negative values, blocks for others.
const char* shade_at(const HeatScale& scale, double position) {
  const double strength = scale.is_signed ? std::abs(2 * position - 1) : position;
  const auto level = std::min<std::size_t>(static_cast<std::size_t>(strength * std::size(kShades)),
                                           std::size(kShades) - 1);
  return scale.is_signed && position < 0.5 ? kNegativeShades[level] : kShades[level];
}

/// Draws the cells of one panel.
class Painter {
 public:
  Painter(const HeatMap& map, const HeatPanel& panel, const Measures& measures,
          TerminalColours colours)
      : map_(map), panel_(panel), measures_(measures), colours_(colours) {}

  std::string line(std::size_t i) const {
    const HeatRow row = map_.row(panel_, i);
    const bool two = measures_.half_blocks && i + 1 < map_.rows();
    const HeatRow below = two ? map_.row(panel_, i + 1) : HeatRow();
    std::string text;
    for (std::size_t j = 0; j < map_.columns(); ++j)
      text += measures_.half_blocks ? halves(row, below, j) : cell(row, j);
    return text;
  }

 private:
  std::string colour(Plane plane, const HeatRow& row, std::size_t column) const {
    return switched(plane, map_, map_.scale.position(row.values[column]), colours_);
  }

  std::string cell(const HeatRow& row, std::size_t column) const {
    const std::size_t width = measures_.cell;
    const CellKind kind = row.kinds[column];
    if (kind != CellKind::value) return mark(kind, width);
    const double position = map_.scale.position(row.values[column]);
    const std::string number = short_number(row.values[column]);
    const bool fits = measures_.has_numbers;
    if (colours_ == TerminalColours::none)
      return fits ? centred(number, width) : repeated(shade_at(map_.scale, position), width);
    return colour(Plane::background, row, column) + switched_ink(map_, position, colours_) +
           (fits ? centred(number, width) : std::string(width, ' ')) + kPlain;
  }

  /// Two rows in one line: the upper one is the foreground of ▀, the lower one its background.
  /// `below` is empty after the last row. Cells are not NaN.
  std::string halves(const HeatRow& row, const HeatRow& below, std::size_t column) const {
    const CellKind above = row.kinds[column];
    const CellKind under = below.kinds.empty() ? CellKind::zero : below.kinds[column];
    if (above != CellKind::value && under != CellKind::value) return mark(above, 1);
    if (under != CellKind::value) return colour(Plane::foreground, row, column) + "▀" + kPlain;
    if (above != CellKind::value) return colour(Plane::foreground, below, column) + "▄" + kPlain;
    return colour(Plane::foreground, row, column) + colour(Plane::background, below, column) + "▀" +
           kPlain;
  }

  std::string mark(CellKind kind, std::size_t width) const {
    if (kind == CellKind::nan)
      return measures_.has_numbers ? centred("nan", width) : repeated("?", width);
    if (kind == CellKind::zero)
      return measures_.has_numbers ? centred("0", width) : repeated(" ", width);
    const std::string text = repeated("╱", width);
    return colours_ == TerminalColours::none ? text : "\x1b[2m" + text + kPlain;
  }

  const HeatMap& map_;
  const HeatPanel& panel_;
  const Measures& measures_;
  TerminalColours colours_;
};

std::size_t widest_label_columns(const std::vector<std::string>& labels) {
  std::size_t max = 0;
  for (const std::string& label : labels) max = std::max(max, columns_of(label));
  return max;
}

bool is_index(const std::string& label) {
  return label.find_first_not_of("0123456789") == std::string::npos;
}

/// Round indices of columns in one line, each where its column is, if columns are the blocks
/// 0, wide, 2 wide, ...
std::string round_ticks(const HeatMap& map, const Measures& m) {
  const std::size_t wide = map.cells.wide, last = wide * map.columns();
  const std::size_t width = std::to_string(last).size() + 1;
  const std::size_t step =
      round_step(static_cast<double>(width * wide) / static_cast<double>(m.cell));
  std::string line;
  for (std::size_t index = 0; index < last; index += step) {
    const std::string label = std::to_string(index);
    const std::size_t at = index / wide * m.cell;
    if (at > 0 && at + label.size() > m.panel) break;
    line = left_aligned(line, at) + label;
  }
  return cut_to_columns(line, m.panel);
}

/// The labels of every n-th column in one line, each starting at its column.
std::string ticks(const HeatMap& map, const Measures& m) {
  bool are_blocks = map.cells.wide > 1;
  for (std::size_t j = 0; are_blocks && j < map.columns(); ++j)
    are_blocks = map.column_labels[j] == std::to_string(j * map.cells.wide);
  if (are_blocks) return round_ticks(map, m);
  const std::size_t width = std::min(widest_label_columns(map.column_labels), kWidestTick) + 1;
  const std::size_t step = round_step(static_cast<double>(width) / static_cast<double>(m.cell));
  std::string line;
  for (std::size_t j = 0; j < map.columns(); j += step) {
    const std::string label = cut_to_columns(map.column_labels[j], step * m.cell - 1);
    if (j > 0 && j * m.cell + columns_of(label) > m.panel) break;
    line = left_aligned(line, j * m.cell) + label;
  }
  return cut_to_columns(line, m.panel);
}

/// Column labels. Wide cells have one line of labels, each cut to its cell. If the labels are
/// indices, or a cell covers several columns, every n-th column has one. Otherwise labels are
/// vertical, one grapheme cluster per line.
Lines column_heads(const HeatMap& map, const Measures& m) {
  Lines lines;
  if (m.has_numbers) {
    std::string line;
    for (const std::string& label : map.column_labels)
      line += centred(cut_to_columns(label, m.cell - 1), m.cell);
    return {line};
  }
  if (map.cells.wide > 1 ||
      std::all_of(map.column_labels.begin(), map.column_labels.end(), is_index))
    return {ticks(map, m)};
  std::vector<std::vector<std::string_view>> letters;
  std::size_t tallest = 0;
  for (const std::string& label : map.column_labels) {
    letters.push_back(graphemes_of(label));
    tallest = std::max(tallest, std::min(letters.back().size(), kTallestLabel));
  }
  for (std::size_t k = 0; k < tallest; ++k) {
    std::string line;
    for (const auto& label : letters) {
      const std::size_t shown = std::min(label.size(), tallest);
      const std::size_t above = tallest - shown;
      std::string letter(k < above ? " " : label[k - above]);
      if (label.size() > tallest && k + 1 == tallest) letter = "…";
      line += left_aligned(columns_of(letter) > m.cell ? "·" : letter, m.cell);
    }
    lines.push_back(line);
  }
  return lines;
}

/// The name, the column labels and the rows of a panel, all of m.panel columns.
Lines panel_lines(const HeatMap& map, const HeatPanel& panel, const Measures& m,
                  const TerminalStyle& style) {
  Lines lines;
  if (!panel.name.empty())
    lines.push_back(left_aligned(cut_to_columns(panel.name, m.panel), m.panel));
  for (const std::string& line : column_heads(map, m)) lines.push_back(left_aligned(line, m.panel));
  const Painter painter(map, panel, m, style.colours);
  const std::string rest(m.panel - m.cell * map.columns(), ' ');
  for (std::size_t i = 0; i < map.rows(); i += m.half_blocks ? 2 : 1)
    lines.push_back(painter.line(i) + rest);
  return lines;
}

/// Row labels beside panels with this number of lines.
Lines label_lines(const HeatMap& map, const Measures& m, std::size_t count) {
  Lines lines;
  for (std::size_t i = 0; i < map.rows(); i += m.half_blocks ? 2 : 1)
    lines.push_back(left_aligned(cut_to_columns(map.row_labels[i], m.label - 1), m.label));
  lines.insert(lines.begin(), count - lines.size(), std::string(m.label, ' '));
  return lines;
}

/// The colour bar and the legend of cells without a value.
std::string colour_bar(const HeatMap& map, const TerminalStyle& style, bool has_numbers) {
  const std::size_t steps =
      std::min<std::size_t>(style.width - 14, 24);  // leaves space for two numbers
  const HeatScale& scale = map.scale;
  std::string bar;
  for (std::size_t i = 0; i < steps; ++i) {
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(steps);
    const double position = scale.position(scale.value_at(share));
    bar += style.colours == TerminalColours::none
               ? shade_at(scale, position)
               : switched(Plane::background, map, position, style.colours) + " ";
  }
  if (style.colours != TerminalColours::none) bar += kPlain;
  std::string text = short_number(scale.low) + " " + bar + " " + short_number(scale.high);
  if (const std::string_view name = name_of(scale.curve); !name.empty())
    text += "\n" + std::string(name);
  if (map.has_hidden) text += "\n╱ hidden";
  if (map.has_zeros && !has_numbers) text += "\nblank: exactly 0";
  if (map.has_nans && !has_numbers) text += "\n? nan";
  return text;
}

/// The columns of the longest number, and of a space.
std::size_t columns_for_numbers(const HeatMap& map) {
  std::size_t columns = kValueCell;
  for (const HeatPanel& panel : map.panels)
    for (std::size_t i = 0; i < map.rows(); ++i) {
      const HeatRow row = map.row(panel, i);
      for (std::size_t j = 0; j < map.columns(); ++j)
        if (row.kinds[j] == CellKind::value)
          columns = std::max(columns, short_number(row.values[j]).size() + 1);
    }
  return columns;
}

/// `available`: columns of a panel.
Measures measures_of(const HeatMap& map, std::size_t label, std::size_t available,
                     TerminalColours colours) {
  Measures m;
  m.label = label;
  const std::size_t cell = available / map.columns();
  const std::size_t number = cell < kValueCell ? kValueCell : columns_for_numbers(map);
  m.has_numbers = cell >= number;
  m.cell = m.has_numbers ? std::min(cell, std::max(kValueCell + 2, number)) : cell >= 2 ? 2 : 1;
  m.half_blocks = m.cell == 1 && colours != TerminalColours::none && !map.has_nans;
  m.panel = m.cell * map.columns();
  for (const HeatPanel& panel : map.panels)
    m.panel = std::max(m.panel, std::min(columns_of(panel.name), available));
  return m;
}

std::string without_trailing_blanks(const std::string& text) {
  std::string kept;
  for (const char letter : text) {
    if (letter == '\n') kept.erase(kept.find_last_not_of(' ') + 1);
    kept += letter;
  }
  return kept;
}

/// Joins panels of equal height side by side.
std::string beside(const Lines& labels, const std::vector<Lines>& panels) {
  std::string text;
  for (std::size_t line = 0; line < labels.size(); ++line) {
    text += labels[line];
    for (std::size_t p = 0; p < panels.size(); ++p)
      text += (p > 0 ? std::string(kBetweenPanels, ' ') : "") + panels[p][line];
    text += "\n";
  }
  return text;
}

/// The panels [first, end) of one group.
std::string group_text(const HeatMap& map, std::size_t first, std::size_t end, const Measures& m,
                       const TerminalStyle& style) {
  const std::size_t fit = std::max<std::size_t>(
      (style.width - m.label + kBetweenPanels) / (m.panel + kBetweenPanels), 1);
  std::string text;
  for (; first < end; first += fit) {
    std::vector<Lines> panels;
    for (std::size_t p = first; p < std::min(first + fit, end); ++p)
      panels.push_back(panel_lines(map, map.panels[p], m, style));
    text += beside(label_lines(map, m, panels[0].size()), panels) + "\n";
  }
  return text;
}

}  // namespace

std::string heat_text(const HeatMap& whole, const TerminalStyle& style) {
  const std::vector<std::size_t> groups = group_ends(whole);
  const bool grid = whole.panels.size() > 1;
  const std::size_t label = std::min({widest_label_columns(whole.row_labels),
                                      grid ? kWidestGridLabel : kWidestLabel, style.width / 4}) +
                            1;
  const auto available_for = [&](std::size_t across) {
    return (style.width - label + kBetweenPanels) / across - kBetweenPanels;
  };
  std::size_t across = std::min(groups[0], grid ? style.width / 38 + 1 : 1);
  if (whole.panels.size() > kMostLarge)
    across = std::clamp<std::size_t>((style.width - label) / kSmallPanel, 1, groups[0]);
  if (across > 1 && whole.columns() > available_for(across) &&
      whole.columns() <= available_for(across - 1))
    --across;  // instead of reducing the map
  const std::size_t available = available_for(across);
  const std::size_t step = (whole.columns() + available - 1) / available;
  const HeatMap map = reduced(whole, (whole.rows() + step - 1) / step, available);
  const Measures m = measures_of(map, label, available, style.colours);
  std::string text = cut_to_columns(map.title, style.width) + "\n";
  for (const std::string& line : map.notes) text += cut_to_columns(line, style.width) + "\n";
  text +=
      cut_to_columns(map.row_axis + " down, " + map.column_axis + " across", style.width) + "\n\n";
  for (std::size_t g = 0, first = 0; g < groups.size(); first = groups[g++]) {
    const std::string& title = map.panels[first].group;
    if (!title.empty()) text += cut_to_columns(title, style.width) + "\n";
    text += group_text(map, first, groups[g], m, style);
  }
  text += colour_bar(map, style, m.has_numbers) + "\n";
  return style.colours == TerminalColours::none ? without_trailing_blanks(text) : text;
}

}  // namespace attn
