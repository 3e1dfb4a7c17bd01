// Formulas, written as LaTeX (papers, Markdown) or MathML (browsers).
#pragma once

#include <string>
#include <vector>

namespace attn {

/// A node of a formula. Texts are UTF-8: "·", "Σ", "−". Names of several letters are upright.
struct Math {
  enum class Kind {
    name,         ///< Q, scores
    number,       ///< 0.25
    sign,         ///< =, +, ·
    row,          ///< parts, one after another
    superscript,  ///< parts[0] to the power of parts[1]
    subscript,
    fraction,
    root,
    matrix,  ///< parts in rows of `columns`
  };
  Kind kind = Kind::row;
  std::string text = {};
  std::vector<Math> parts = {};
  std::size_t columns = 0;
};

namespace math {

Math name(const std::string& text);
Math sign(const std::string& text);
Math row(std::vector<Math> parts);
Math superscript(Math base, Math power);
Math subscript(Math base, Math index);
Math fraction(Math above, Math below);
Math root(Math inside);
Math matrix(std::vector<Math> cells, std::size_t columns);

/// A number with at most six significant digits: "8", "0.236090", "1.2 · 10^-5", "−∞".
Math number(double value);

/// The same inside a product or a sum: in parentheses if negative.
Math factor(double value);

}  // namespace math

/// One line of a derivation: left = right = right ...
struct Equation {
  Math left;
  std::vector<Math> rights;
};

/// Approximate width in digits.
double width(const Math& math);

std::string latex(const Math& math);
std::string mathml(const Math& math);

}  // namespace attn
