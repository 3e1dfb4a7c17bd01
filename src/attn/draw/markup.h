// Formulas, written as LaTeX (papers, Markdown), MathML (browsers) or plain text (terminals), and
// escapes of text for HTML, SVG and scripts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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
    parentheses,  ///< as tall as parts[0]
    matrix,       ///< parts in rows of `columns`
    blank,        ///< a line to write a number on
  };
  Kind kind = Kind::row;
  std::string text = {};
  std::vector<Math> parts = {};
  std::size_t columns = 0;
  std::vector<std::string> row_labels = {}, column_labels = {};  ///< of a matrix; empty for none
  std::optional<double> value = {};  ///< of a number, whose digits `text` or `parts` show
};

namespace math {

Math name(const std::string& text);
Math sign(const std::string& text);
Math row(std::vector<Math> parts);
Math superscript(Math base, Math power);
Math subscript(Math base, Math index);
Math fraction(Math above, Math below);
Math root(Math inside);
Math parentheses(Math inside);
Math matrix(std::vector<Math> cells, std::size_t columns);
Math blank();

/// A number with at most six significant digits: "8", "0.236090", "1.2 · 10^-5", "−∞"; or with at
/// most `decimals` digits after the point.
Math number(double value, std::optional<int> decimals = {});

/// The same inside a product or a sum: in parentheses if negative.
Math factor(double value);

/// Writes all numbers of a formula with at most `decimals` digits after the point.
void set_decimals(Math& math, int decimals);

}  // namespace math

/// One line of a derivation: left = right = right ...
struct Equation {
  Math left;
  std::vector<Math> rights;
  /// What an exercise shows of the result; all of an input, which is not computed.
  enum class Given { none, zeros, all } given = Given::none;
};

/// Labels of rows are set beside the matrix; those of columns are omitted.
std::string latex(const Math& math);

/// The width of latex() in digits of its font, or a little more.
double latex_width(const Math& math);

/// Root signs and brackets are drawn with the styles of draw/page/steps.css, because browsers
/// without a mathematical font cannot stretch them.
std::string mathml(const Math& math);

/// On one line: "e^(s - 2) / 3", with the matrix as "[2 x 3]".
std::string plain_text(const Math& math);

/// Text for LaTeX: special characters are escaped, and ligatures such as "--" prevented; characters
/// that pdfLaTeX with T1 fonts lacks are written as "U+6771".
std::string latex_text(const std::string& text);

/// `text` as content or attribute value of HTML and XML: & < > " ' become references; what XML does
/// not allow (controls, U+FFFE, U+FFFF, bytes that are not UTF-8) becomes U+FFFD.
std::string markup(std::string_view text);

/// `text` as a JSON string inside a script element: < > & (so that "</script>" cannot end it),
/// U+2028 and U+2029 are escaped as well.
std::string script_string(std::string_view text);

}  // namespace attn
