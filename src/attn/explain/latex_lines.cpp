#include "attn/explain/latex_lines.h"

#include <algorithm>

namespace attn {
namespace {

constexpr double kEqualsWidth = 2.8, kQuadWidth = 2;  // in digits

bool is_sign(const Math& math, const char* text) {
  return math.kind == Math::Kind::sign && math.text == text;
}

/// Whether the "+" of a row are its own, not those of a sum in parentheses.
bool is_sum(const Math& math) {
  return math.kind == Math::Kind::row &&
         std::any_of(math.parts.begin(), math.parts.end(),
                     [](const Math& part) { return is_sign(part, "+"); }) &&
         !is_sign(math.parts.front(), "(");
}

void append_terms(const Math& sum, std::vector<Math>& terms) {
  for (const Math& part : sum.parts)
    if (is_sum(part))
      append_terms(part, terms);
    else if (is_sign(part, "+"))
      terms.push_back(math::row({part}));
    else
      terms.back().parts.push_back(part);
}

/// The terms of a sum; each but the first begins with its "+".
std::vector<Math> terms_of(const Math& formula) {
  if (!is_sum(formula)) return {formula};
  std::vector<Math> terms = {math::row({})};
  append_terms(formula, terms);
  return terms;
}

/// As many terms on each line as fit `space`; lines after the first are indented.
std::string broken_sum(const Math& formula, double space, const LatexLayout& layout) {
  std::string text;
  double used = 0;
  for (const Math& term : terms_of(formula)) {
    const double width = latex_width(term);
    if (!text.empty() && used + width > space) {
      text += layout.end + "&\\quad ";
      used = kQuadWidth;
    }
    text += latex(term);
    used += width;
  }
  return text;
}

std::string latex_line(const Equation& line, double left_width, const LatexLayout& layout) {
  const double space = layout.max_width - left_width - kEqualsWidth;
  double wide = left_width;
  for (const Math& right : line.rights) wide += kEqualsWidth + latex_width(right);
  std::string text = latex(line.left);
  for (std::size_t r = 0; r < line.rights.size(); ++r) {
    const bool breaks = r > 0 && r + 1 == line.rights.size() && wide > layout.max_width;
    text += (breaks   ? layout.end + "&= "
             : r == 0 ? " &= "
                      : " = ") +
            broken_sum(line.rights[r], space, layout);
  }
  return text;
}

}  // namespace

std::string latex_lines(const Derivation& derivation, const LatexLayout& layout) {
  double left_width = 0;
  for (const Equation& line : derivation.lines)
    left_width = std::max(left_width, latex_width(line.left));
  std::string text = "\\begin{aligned}\n";
  for (std::size_t i = 0; i < derivation.lines.size(); ++i)
    text += (i == 0 ? "" : layout.end) + latex_line(derivation.lines[i], left_width, layout);
  return text + "\n\\end{aligned}";
}

}  // namespace attn
