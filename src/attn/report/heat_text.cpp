#include "attn/report/heat_text.h"

#include <algorithm>
#include <cmath>

#include "attn/base/utf8.h"

namespace attn {
namespace {

constexpr std::size_t kValueCell = 6;     // "-0.25" and a space
constexpr std::size_t kTallestLabel = 8;  // lines of a vertical column label
constexpr std::size_t kWidestLabel = 14;  // columns of a row label
constexpr std::size_t kBetweenPanels = 2;
constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};

using Lines = std::vector<std::string>;

/// The measures of a panel, the same for all.
struct Measures {
  std::size_t label = 0;     ///< columns of the row labels and the space after them
  std::size_t cell = 1;      ///< columns of a cell
  bool half_blocks = false;  ///< two rows per line
  bool column_labels = true;
  std::size_t panel_width(std::size_t columns) const { return label + cell * columns; }
};

std::string padded(const std::string& text, std::size_t columns) {
  const std::size_t width = columns_of(text);
  return text + std::string(columns - std::min(width, columns), ' ');
}

std::string centred(const std::string& text, std::size_t columns) {
  const std::size_t width = columns_of(text);
  return padded(std::string(columns > width ? (columns - width) / 2 : 0, ' ') + text, columns);
}

ColourMap colours_of(const HeatMap& map) {
  return map.scale.is_signed ? ColourMap::diverging : ColourMap::night;
}

/// The escape sequence for a foreground ("38") or background ("48") colour.
std::string switched(const char* what, Rgb colour, TerminalColours colours) {
  const std::string start = std::string("\x1b[") + what;
  if (colours == TerminalColours::palette_256)
    return start + ";5;" + std::to_string(nearest_of_256(colour)) + "m";
  return start + ";2;" + std::to_string(colour.red) + ";" + std::to_string(colour.green) + ";" +
         std::to_string(colour.blue) + "m";
}

constexpr const char* kPlain = "\x1b[0m";

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
  Rgb colour(const HeatRow& row, std::size_t column) const {
    return colour_at(colours_of(map_), map_.scale.position(row.values[column]));
  }

  std::string cell(const HeatRow& row, std::size_t column) const {
    const std::size_t width = measures_.cell;
    const CellKind kind = row.kinds[column];
    if (kind != CellKind::value) return mark(kind, width);
    const std::string number = short_number(row.values[column]);
    const bool fits = width >= kValueCell;
    if (colours_ == TerminalColours::none)
      return fits ? centred(number, width) : shade(row.values[column]);
    const Rgb background = colour(row, column);
    return switched("48", background, colours_) + switched("38", ink_on(background), colours_) +
           (fits ? centred(number, width) : std::string(width, ' ')) + kPlain;
  }

  /// Two rows in one line: the upper one is the foreground of ▀, the lower one its background.
  /// `below` is empty after the last row.
  std::string halves(const HeatRow& row, const HeatRow& below, std::size_t column) const {
    const CellKind above = row.kinds[column];
    const CellKind under = below.kinds.empty() ? CellKind::hidden : below.kinds[column];
    if (above == CellKind::nan || under == CellKind::nan) return "?";
    if (above != CellKind::value && under != CellKind::value) return mark(CellKind::hidden, 1);
    if (under != CellKind::value)
      return switched("38", colour(row, column), colours_) + "▀" + kPlain;
    if (above != CellKind::value)
      return switched("38", colour(below, column), colours_) + "▄" + kPlain;
    return switched("38", colour(row, column), colours_) +
           switched("48", colour(below, column), colours_) + "▀" + kPlain;
  }

  std::string mark(CellKind kind, std::size_t width) const {
    if (kind == CellKind::nan) return width == 1 ? "?" : centred(width > 3 ? "nan" : "??", width);
    std::string text;
    for (std::size_t i = 0; i < width; ++i) text += "╱";
    return colours_ == TerminalColours::none ? text : "\x1b[2m" + text + kPlain;
  }

  /// Shades do not show the sign, so negative values get a minus.
  std::string shade(double value) const {
    const double position = map_.scale.position(value);
    const bool negative = map_.scale.is_signed && value < 0;
    const double strength = map_.scale.is_signed ? std::abs(2 * position - 1) : position;
    const std::string block = kShades[std::min<std::size_t>(
        static_cast<std::size_t>(strength * std::size(kShades)), std::size(kShades) - 1)];
    std::string text = negative && measures_.cell > 1 ? "-" : block;
    for (std::size_t i = 1; i < measures_.cell; ++i) text += block;
    return text;
  }

  const HeatMap& map_;
  const HeatPanel& panel_;
  const Measures& measures_;
  TerminalColours colours_;
};

/// Column labels: in the width of a cell, or vertical, one grapheme cluster per line.
Lines column_heads(const HeatMap& map, const Measures& m) {
  const std::string indent(m.label, ' ');
  Lines lines;
  if (m.cell >= kValueCell) {
    std::string line = indent;
    for (const std::string& label : map.column_labels)
      line += centred(cut_to_columns(label, m.cell - 1), m.cell);
    return {line};
  }
  std::vector<std::vector<std::string_view>> letters;
  std::size_t tallest = 0;
  for (const std::string& label : map.column_labels) {
    letters.push_back(graphemes_of(label));
    tallest = std::max(tallest, std::min(letters.back().size(), kTallestLabel));
  }
  for (std::size_t k = 0; k < tallest; ++k) {
    std::string line = indent;
    for (const auto& label : letters) {
      const std::size_t shown = std::min(label.size(), tallest);
      const std::size_t above = tallest - shown;
      std::string letter(k < above ? " " : label[k - above]);
      if (label.size() > tallest && k + 1 == tallest) letter = "…";
      line += padded(columns_of(letter) > m.cell ? "·" : letter, m.cell);
    }
    lines.push_back(line);
  }
  return lines;
}

Lines panel_lines(const HeatMap& map, const HeatPanel& panel, const Measures& m,
                  const TerminalStyle& style) {
  const std::size_t width = m.panel_width(map.columns());
  Lines lines;
  if (!panel.title.empty()) lines.push_back(padded(cut_to_columns(panel.title, width), width));
  if (m.column_labels)
    for (const std::string& line : column_heads(map, m)) lines.push_back(padded(line, width));
  const Painter painter(map, panel, m, style.colours);
  for (std::size_t i = 0; i < map.rows(); i += m.half_blocks ? 2 : 1) {
    const std::string label = m.label == 0 ? "" : cut_to_columns(map.row_labels[i], m.label - 1);
    lines.push_back(padded(label, m.label) + painter.line(i));
  }
  return lines;
}

std::string colour_bar(const HeatMap& map, const TerminalStyle& style) {
  const std::size_t steps =
      std::min<std::size_t>(style.width - 14, 24);  // leaves space for two numbers
  const HeatScale& scale = map.scale;
  std::string bar;
  for (std::size_t i = 0; i < steps; ++i) {
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(steps);
    const double value = scale.logarithmic ? scale.low * std::pow(scale.high / scale.low, share)
                                           : std::lerp(scale.low, scale.high, share);
    const double position = scale.position(value);
    const double strength = scale.is_signed ? std::abs(2 * position - 1) : position;
    bar += style.colours == TerminalColours::none
               ? kShades[std::min<std::size_t>(static_cast<std::size_t>(strength * 5), 4)]
               : switched("48", colour_at(colours_of(map), position), style.colours) + " ";
  }
  if (style.colours != TerminalColours::none) bar += kPlain;
  std::string text = short_number(scale.low) + " " + bar + " " + short_number(scale.high);
  if (scale.logarithmic) text += "\nlog scale";
  if (!map.hidden_means.empty()) text += "\n╱ " + map.hidden_means;
  return text;
}

std::size_t widest(const std::vector<std::string>& labels) {
  std::size_t most = 0;
  for (const std::string& label : labels) most = std::max(most, columns_of(label));
  return most;
}

Measures measures_of(const HeatMap& map, std::size_t width, bool grid, TerminalColours colours) {
  Measures m;
  const bool small = map.columns() * 2 + 4 <= width;
  m.label = grid && !small ? 0 : std::min({widest(map.row_labels), kWidestLabel, width / 4}) + 1;
  const std::size_t available = (width - m.label) / map.columns();
  m.cell = available >= kValueCell ? std::min(available, kValueCell + 2) : available >= 2 ? 2 : 1;
  m.half_blocks = m.cell == 1 && colours != TerminalColours::none;
  m.column_labels = !grid || small;
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

/// Joins panels side by side, padded to the height of the tallest.
std::string beside(const std::vector<Lines>& panels) {
  std::string text;
  for (std::size_t line = 0; line < panels[0].size(); ++line) {
    for (std::size_t p = 0; p < panels.size(); ++p)
      text += (p > 0 ? std::string(kBetweenPanels, ' ') : "") + panels[p][line];
    text += "\n";
  }
  return text;
}

}  // namespace

std::string heat_text(const HeatMap& whole, const TerminalStyle& style) {
  const bool grid = whole.panels.size() > 1;
  const std::size_t across =
      std::min<std::size_t>(whole.panels.size(), grid ? style.width / 38 + 1 : 1);
  const std::size_t available = (style.width + kBetweenPanels) / across - kBetweenPanels;
  const std::size_t label =
      grid ? 0 : std::min({widest(whole.row_labels), kWidestLabel, available / 4}) + 1;
  const std::size_t step = (whole.columns() + available - label - 1) / (available - label);
  const HeatMap map = reduced(whole, (whole.rows() + step - 1) / step, available - label);
  const Measures m = measures_of(map, available, grid, style.colours);
  std::string text = cut_to_columns(map.title, style.width) + "\n";
  for (const std::string& line : map.notes) text += cut_to_columns(line, style.width) + "\n";
  text +=
      cut_to_columns(map.row_axis + " down, " + map.column_axis + " across", style.width) + "\n\n";
  const std::size_t fit = std::max<std::size_t>(
      (style.width + kBetweenPanels) / (m.panel_width(map.columns()) + kBetweenPanels), 1);
  for (std::size_t first = 0; first < map.panels.size(); first += fit) {
    std::vector<Lines> panels;
    for (std::size_t p = first; p < std::min(first + fit, map.panels.size()); ++p)
      panels.push_back(panel_lines(map, map.panels[p], m, style));
    text += beside(panels) + "\n";
  }
  text += colour_bar(map, style) + "\n";
  return style.colours == TerminalColours::none ? without_trailing_blanks(text) : text;
}

}  // namespace attn
