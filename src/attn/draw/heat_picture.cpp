#include "attn/draw/heat_picture.h"

#include <algorithm>
#include <cmath>

#include "attn/base/text.h"

namespace attn {
namespace {

constexpr double kMargin = 16, kGap = 10, kBarWidth = 14;
constexpr double kTitleSize = 15, kTextSize = 12, kSmallest = 7.5;
constexpr double kMaxLabelWidth = 110;
constexpr double kLeastSide = 24;  // of a matrix, so that a single row of many keys is visible
constexpr double kMinNumberedCell = 34;  // size of the smallest cell that shows its value
constexpr double kBarSpace = 80;         // approximate width of the colour bar with its numbers
constexpr double kGroupTitle = kTextSize + 10;  // height of the title of a group

/// The positions of everything.
struct Figure {
  std::size_t across = 1, down = 1;  ///< panels
  bool grouped = false;              ///< each group starts a new row and has a title
  double cell = 1;
  double label_size = kTextSize;
  std::size_t row_step = 1, column_step = 1;  ///< every n-th row and column has a label
  bool labelled = true;
  bool vertical = true;          ///< column labels
  double left = 0, top = 0;      ///< space for the labels of a panel
  double panel_title = 0;        ///< height of the panel title
  double width = 0, height = 0;  ///< size of a panel's matrix
  double wide = 1, tall = 1;     ///< size of a cell, at least `cell`
  double stride_x() const { return left + width + kGap; }
  double stride_y() const { return panel_title + top + height + kGap; }
};

/// Width of the widest label shown.
double shown_label_width(const std::vector<std::string>& labels, std::size_t step, double size) {
  double max = 0;
  for (std::size_t i = 0; i < labels.size(); i += step)
    max = std::max(max, text_width(labels[i], size));
  return std::min(max, kMaxLabelWidth);
}

/// With a typographic minus sign.
std::string typeset(const std::string& number) {
  std::string text;
  for (const char c : number) text += c == '-' ? "\u2212" : std::string(1, c);
  return text;
}

/// The ends of a scale and round numbers between them: powers of ten on a logarithmic scale,
/// otherwise multiples of 1, 2, 2.5 or 5 times a power of ten. Round numbers too close to an end
/// are omitted.
std::vector<double> ticks_of(const HeatScale& scale) {
  constexpr double kNear = 0.07;  // of the bar
  std::vector<double> ticks = {scale.low, scale.high};
  const auto add = [&](double value) {
    const double share = scale.share(value);
    if (share > kNear && share < 1 - kNear) ticks.push_back(value);
  };
  if (scale.curve == Curve::logarithmic) {
    for (double power = std::ceil(std::log10(scale.low)); power <= std::log10(scale.high); ++power)
      add(std::pow(10, power));
    return ticks;
  }
  const double span = scale.high - scale.low,
               magnitude = std::pow(10, std::floor(std::log10(span)));
  double step = magnitude;
  for (const double round : {0.2, 0.25, 0.5, 1.0, 2.0})  // the first with at most six steps
    if (span / (round * magnitude) <= 6.001) {
      step = round * magnitude;
      break;
    }
  for (double k = std::ceil(scale.low / step); k * step < scale.high; ++k) add(k * step);
  return ticks;
}

/// About the square root of the number of panels, if possible such that all rows are full.
std::size_t columns_for(std::size_t panels) {
  const auto root = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(panels))));
  for (std::size_t columns = root; columns <= root + root / 2; ++columns)
    if (panels % columns == 0) return columns;
  return root;
}

/// The layout except for the space for labels. `group`: panels of a group, the same for all.
Figure bare_figure(std::size_t panels, std::size_t group, std::size_t rows, std::size_t columns) {
  constexpr std::size_t kMaxGrouped = 32, kMaxGroups = 4;  // per panel of a group
  Figure f;
  const std::size_t groups = panels / group;
  f.across = columns_for(panels);
  const auto widest = static_cast<double>(groups > 1 ? std::max(f.across, group) : f.across);
  f.grouped = groups > 1 && group <= kMaxGrouped && groups <= kMaxGroups * group;
  if (f.grouped) f.across = group;
  f.down = (panels + f.across - 1) / f.across;
  const bool grid = panels > 1;
  const double longer = static_cast<double>(std::max(rows, columns));
  const double available = grid ? std::max(96.0, 880 / widest - 24) : 620;
  f.cell = std::clamp(available / longer, 1.0, grid ? 34.0 : 52.0);
  if (f.cell > 3) f.cell = std::floor(f.cell);
  f.width = std::max(f.cell * static_cast<double>(columns), kLeastSide);
  f.height = std::max(f.cell * static_cast<double>(rows), kLeastSide);
  f.wide = f.width / static_cast<double>(columns);
  f.tall = f.height / static_cast<double>(rows);
  f.labelled = !grid || f.cell >= 13;
  f.panel_title = grid ? kTextSize + 6 : 0;
  return f;
}

Figure figure_of(const HeatMap& map) {
  Figure f = bare_figure(map.panels.size(), group_ends(map)[0], map.rows(), map.columns());
  if (!f.labelled) return f;
  f.label_size = std::clamp(f.cell * 0.9, kSmallest, kTextSize);
  f.row_step = round_step(f.label_size * 1.1 / f.tall);
  f.column_step = round_step(f.label_size * 1.1 / f.wide);
  const double across = shown_label_width(map.column_labels, f.column_step, f.label_size);
  f.vertical = across > f.wide - 4;
  f.left = shown_label_width(map.row_labels, f.row_step, f.label_size) + 8;
  f.top = f.vertical ? across + 8 : f.label_size + 8;
  return f;
}

class PictureLayout {
 public:
  PictureLayout(const HeatMap& map, const Theme& theme)
      : map_(map), theme_(theme), f_(figure_of(map)) {
    picture_.title = map.title;
    picture_.theme = theme;
    for (std::size_t k = 0; k < kLevels; ++k)
      picture_.palette[k] =
          colour_at(colours(), static_cast<double>(k) / static_cast<double>(kLevels - 1));
    double y = heading();
    const double x = kMargin + kTextSize + 6;  // right of the title of the row axis
    const double across = f_.stride_x() * static_cast<double>(f_.across) - kGap;
    const double group_title = f_.grouped ? kGroupTitle : 0;
    const double stride_y = f_.stride_y() + group_title;
    const double down = stride_y * static_cast<double>(f_.down) - kGap;
    const double matrix_y = group_title + f_.panel_title + f_.top;
    y += kTextSize + 4;
    text(x + f_.left + (across - f_.left) / 2, y - 4, map.column_axis, kTextSize, Anchor::middle);
    picture_.shapes.emplace_back(TextShape{kMargin + kTextSize,
                                           y + matrix_y + (down - matrix_y) / 2, map.row_axis,
                                           kTextSize, Anchor::middle, true, theme.soft_ink});
    for (std::size_t p = 0; p < map.panels.size(); ++p) {
      const std::size_t row = p / f_.across, column = p % f_.across;
      const double panel_y = y + static_cast<double>(row) * stride_y;
      if (f_.grouped && column == 0)
        text(x + f_.left, panel_y + kTextSize + 2, map.panels[p].group, kTextSize + 1,
             Anchor::start, theme.ink);
      panel(map.panels[p], x + static_cast<double>(column) * f_.stride_x() + f_.left,
            panel_y + group_title);
    }
    const double bar_bottom = colour_bar(x + across + 18, y + matrix_y, f_.height);
    picture_.height = std::max(y + down, bar_bottom) + kMargin;
    picture_.width = std::max(picture_.width, x + across + 18 + bar_width_ + kMargin);
  }

  Picture take() { return std::move(picture_); }

 private:
  ColourMap colours() const { return map_.scale.is_signed ? theme_.diverging : theme_.sequential; }

  /// The level of a value.
  std::uint8_t level(double value) const {
    return static_cast<std::uint8_t>(std::lround(map_.scale.position(value) * (kLevels - 1)));
  }

  void text(double x, double y, const std::string& text, double size, Anchor anchor, Rgb colour) {
    picture_.shapes.emplace_back(TextShape{x, y, text, size, anchor, false, colour});
  }
  void text(double x, double y, const std::string& text, double size,
            Anchor anchor = Anchor::start) {
    this->text(x, y, text, size, anchor, theme_.soft_ink);
  }

  /// Draws title and notes; returns the y below them.
  double heading() {
    double y = kMargin + kTitleSize;
    text(kMargin, y, map_.title, kTitleSize, Anchor::start, theme_.ink);
    picture_.width = 2 * kMargin + text_width(map_.title, kTitleSize);
    const double width =
        std::max(300.0, f_.stride_x() * static_cast<double>(f_.across) + kBarSpace);
    const auto fits = [&](const std::string& line) { return text_width(line, kTextSize) <= width; };
    for (const std::string& note : map_.notes)
      for (const std::string& line : wrapped_lines(note, fits)) {
        y += kTextSize + 5;
        text(kMargin, y, line, kTextSize);
        picture_.width = std::max(picture_.width, 2 * kMargin + text_width(line, kTextSize));
      }
    return y + 12;
  }

  /// `x` is the left edge of the matrix, `y` the top of the panel including its title.
  void panel(const HeatPanel& panel, double x, double y) {
    const std::string title = f_.grouped ? panel.name : panel.title();
    if (!title.empty())
      text(x, y + kTextSize, cut_to_width(title, kTextSize, f_.width + kGap - 4), kTextSize,
           Anchor::start, theme_.ink);
    const double top = y + f_.panel_title + f_.top;
    CellsShape shape{{x, top, f_.width, f_.height}, map_.rows(), map_.columns(), {}};
    shape.cells.reserve(map_.rows() * map_.columns());
    for (std::size_t i = 0; i < map_.rows(); ++i) {
      const HeatRow row = map_.row(panel, i);
      for (std::size_t j = 0; j < row.values.size(); ++j)
        shape.cells.push_back(row.kinds[j] == CellKind::value ? level(row.values[j])
                                                              : code_of(row.kinds[j]));
    }
    picture_.shapes.emplace_back(std::move(shape));
    picture_.shapes.emplace_back(BoxShape{{x, top, f_.width, f_.height}, theme_.frame, true});
    if (f_.cell >= kMinNumberedCell) numbers(panel, x, top);
    if (f_.labelled) labels(x, top);
  }

  void numbers(const HeatPanel& panel, double x, double top) {
    const double size = f_.cell >= 44 ? 12 : 9.5;
    for (std::size_t i = 0; i < map_.rows(); ++i) {
      const HeatRow row = map_.row(panel, i);
      for (std::size_t j = 0; j < map_.columns(); ++j) {
        const CellKind kind = row.kinds[j];
        if (kind == CellKind::hidden || kind == CellKind::nan) continue;
        text(x + (static_cast<double>(j) + 0.5) * f_.wide,
             top + (static_cast<double>(i) + 0.5) * f_.tall + size * 0.36,
             typeset(short_number(row.values[j])), size, Anchor::middle,
             kind == CellKind::value ? ink_on(picture_.palette[level(row.values[j])]) : theme_.ink);
      }
    }
  }

  void labels(double x, double top) {
    const double size = f_.label_size;
    for (std::size_t i = 0; i < map_.rows(); i += f_.row_step)
      text(x - 5, top + (static_cast<double>(i) + 0.5) * f_.tall + size * 0.36,
           cut_to_width(map_.row_labels[i], size, kMaxLabelWidth), size, Anchor::end, theme_.ink);
    for (std::size_t j = 0; j < map_.columns(); j += f_.column_step) {
      const std::string label = cut_to_width(map_.column_labels[j], size, kMaxLabelWidth);
      const double middle = x + (static_cast<double>(j) + 0.5) * f_.wide;
      if (f_.vertical)
        picture_.shapes.emplace_back(
            TextShape{middle + size * 0.36, top - 5, label, size, Anchor::start, true, theme_.ink});
      else
        text(middle, top - 6, label, size, Anchor::middle, theme_.ink);
    }
  }

  /// The colour bar, its numbers, and the legend of hatched and crossed cells; returns the lowest
  /// y.
  double colour_bar(double x, double top, double tall) {
    const HeatScale& scale = map_.scale;
    tall = std::clamp(tall, 100.0, 320.0);
    const auto steps = static_cast<std::size_t>(tall);
    CellsShape bar{{x, top, kBarWidth, tall}, steps, 1, {}};
    for (std::size_t i = 0; i < steps; ++i)
      bar.cells.push_back(level(scale.value_at(1 - (static_cast<double>(i) + 0.5) / tall)));
    picture_.shapes.emplace_back(std::move(bar));
    picture_.shapes.emplace_back(BoxShape{{x, top, kBarWidth, tall}, theme_.frame, true});
    const auto is_end = [&](double tick) { return tick == scale.low || tick == scale.high; };
    for (const double tick : ticks_of(scale)) {
      const std::string number = typeset(short_number(tick));
      if (!is_end(tick) && (number == typeset(short_number(scale.low)) ||
                            number == typeset(short_number(scale.high))))
        continue;  // 1e5 beside 1e5
      const double y = top + tall * (1 - scale.share(tick));
      picture_.shapes.emplace_back(BoxShape{{x + kBarWidth, y - 0.5, 3, 1}, theme_.frame, false});
      note_beside(x, y + kTextSize * 0.36, number);
    }
    double y = top + tall + 24;
    if (const std::string name(name_of(scale.curve)); !name.empty()) {
      text(x, y, name, kTextSize);
      bar_width_ = std::max(bar_width_, text_width(name, kTextSize));
      y += 20;
    }
    const auto explain = [&](bool drawn, CellKind kind, const char* meaning) {
      if (!drawn) return;
      const Box box{x, y - 11, kBarWidth, kBarWidth};
      picture_.shapes.emplace_back(CellsShape{box, 1, 1, {code_of(kind)}});
      picture_.shapes.emplace_back(BoxShape{box, theme_.frame, true});
      note_beside(x, y, meaning);
      y += 20;
    };
    explain(map_.has_hidden, CellKind::hidden, "hidden");
    explain(map_.has_zeros, CellKind::zero, "exactly 0");
    explain(map_.has_nans, CellKind::nan, "nan");
    return y - 12;
  }

  static std::uint8_t code_of(CellKind kind) {
    return kind == CellKind::nan ? kNanCell : kind == CellKind::zero ? kZeroCell : kHiddenCell;
  }

  void note_beside(double x, double y, const std::string& words) {
    text(x + kBarWidth + 6, y, words, kTextSize, Anchor::start, theme_.ink);
    bar_width_ = std::max(bar_width_, kBarWidth + 6 + text_width(words, kTextSize));
  }

  const HeatMap& map_;
  const Theme& theme_;
  Figure f_;
  Picture picture_;
  double bar_width_ = 0;  ///< width of the bar and its numbers
};

/// The rows or columns that fit a panel.
std::size_t max_cells_across(std::size_t panels) {
  return panels > 36 ? 128 : panels > 1 ? 256 : 1024;
}

}  // namespace

Picture heat_picture(const HeatMap& whole, bool dark, std::size_t most) {
  const std::size_t max = std::min(most, max_cells_across(whole.panels.size()));
  const HeatMap map = reduced(whole, max, max);
  return PictureLayout(map, theme(dark)).take();
}

PictureBounds picture_bounds(std::size_t panels, std::size_t group, std::size_t rows,
                             std::size_t columns, double label) {
  constexpr double kMargins = 300;  // margins, title, notes and colour bar
  const std::size_t max = max_cells_across(panels);
  rows = std::min(rows, max);
  columns = std::min(columns, max);
  Figure f = bare_figure(panels, group, rows, columns);
  const double cells = static_cast<double>(rows * columns);
  double texts = f.cell >= kMinNumberedCell ? cells : 0;
  if (f.labelled) {
    f.left = f.top = std::max(std::min(label, kMaxLabelWidth), kTextSize) + 8;
    texts += static_cast<double>(rows + columns);
  }
  const auto count = static_cast<double>(panels);
  return {static_cast<double>(f.across) * f.stride_x() + kMargins,
          static_cast<double>(f.down) * (f.stride_y() + kGroupTitle) + kMargins, count * cells,
          count * texts};
}

}  // namespace attn
