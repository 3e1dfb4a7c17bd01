#include "attn/explain/worked_text.h"

#include <algorithm>

#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/draw/markup.h"

namespace attn {
namespace {

constexpr std::size_t kWidestText = 80;

/// The bracket beside row i of `count` rows.
std::string bracket(std::size_t i, std::size_t count, bool opens) {
  if (count == 1) return opens ? "[" : "]";
  if (i == 0) return opens ? "⎡" : "⎤";
  if (i + 1 == count) return opens ? "⎣" : "⎦";
  return opens ? "⎢" : "⎥";
}

/// A line for each row, with the labels of columns above, if any.
std::vector<std::string> matrix_lines(const Math& math) {
  const std::size_t columns = math.columns, count = math.parts.size() / columns;
  std::vector<std::size_t> widths(columns);
  std::size_t label_width = 0;
  for (const std::string& label : math.row_labels)
    label_width = std::max(label_width, columns_of(label) + 1);
  for (std::size_t i = 0; i < math.parts.size(); ++i)
    widths[i % columns] = std::max(widths[i % columns], columns_of(plain_text(math.parts[i])));
  for (std::size_t j = 0; j < math.column_labels.size(); ++j)
    widths[j] = std::max(widths[j], columns_of(math.column_labels[j]));
  std::vector<std::string> lines;
  if (!math.column_labels.empty()) {
    std::string line(label_width + 1, ' ');
    for (std::size_t j = 0; j < columns; ++j)
      line += " " + right_aligned(math.column_labels[j], widths[j]) + " ";
    lines.push_back(line);
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::string line =
        label_width == 0 ? "" : left_aligned(math.row_labels[i], label_width - 1) + " ";
    line += bracket(i, count, true);
    for (std::size_t j = 0; j < columns; ++j)
      line += " " + right_aligned(plain_text(math.parts[i * columns + j]), widths[j]) + " ";
    lines.push_back(line + bracket(i, count, false));
  }
  return lines;
}

/// "S = Q K^T = ". If the last right side is a matrix, it follows on the same lines, or below if
/// they are too narrow.
std::string equation_text(const Equation& equation, std::size_t left_width, std::size_t width) {
  std::string line = "  " + left_aligned(plain_text(equation.left), left_width);
  const Math* matrix = nullptr;
  for (const Math& right : equation.rights) {
    line += " =";
    if (right.kind == Math::Kind::matrix)
      matrix = &right;
    else
      line += " " + plain_text(right);
  }
  if (matrix == nullptr) return line + "\n";
  const std::vector<std::string> rows = matrix_lines(*matrix);
  const std::size_t labels = matrix->column_labels.empty() ? 0 : 1;
  const bool beside = columns_of(line) + 1 + columns_of(rows.back()) <= width;
  const std::size_t middle = labels + (rows.size() - labels - 1) / 2;
  const std::string indent(beside ? columns_of(line) + 1 : 4, ' ');
  std::string text = beside ? "" : line + "\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string row = (beside && i == middle ? line + " " : indent) + rows[i];
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

struct PlainText {
  const TerminalStyle& style;

  std::size_t width() const { return std::min(style.width, kWidestText); }
  std::string operator()(const Heading& block) const { return block.text + "\n\n"; }
  std::string operator()(const Paragraph& block) const {
    const auto fits = [&](const std::string& line) { return columns_of(line) <= width(); };
    return join(wrapped_lines(block.text, fits), "\n") + "\n\n";
  }
  std::string operator()(const Derivation& block) const {
    std::size_t left = 0;
    for (const Equation& line : block.lines)
      left = std::max(left, columns_of(plain_text(line.left)));
    std::string text;
    for (const Equation& line : block.lines) {
      const bool is_matrix = line.rights.back().kind == Math::Kind::matrix;
      if (is_matrix && !text.empty()) text += "\n";
      text += equation_text(line, left, std::max(style.width, kWidestText));
    }
    return text + "\n";
  }
  std::string operator()(const HeatMap& map) const { return heat_text(map, style) + "\n"; }
};

}  // namespace

std::string text_of(const WorkedSteps& steps, const TerminalStyle& style) {
  std::string text = steps.title + "\n\n";
  for (const auto& block : steps.blocks) text += std::visit(PlainText{style}, block);
  text.pop_back();  // the empty line at the end
  return text;
}

}  // namespace attn
