#include "attn/draw/markup.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"

namespace attn {
namespace {

/// A sign, or a name that is written as one: its LaTeX command and its width in digits, with the
/// space around it.
struct LatexSign {
  std::string_view text, command;
  double width;
};
constexpr LatexSign kLatexSigns[] = {
    {"·", "\\cdot ", 1.5},  {"×", "\\times ", 2.5}, {"Σ", "\\sum ", 3.3},  {"…", "\\dots ", 3},
    {"⋮", "\\vdots ", 0.6}, {"⋱", "\\ddots ", 2.6}, {"−", "-", 2.5},       {"+", "+", 2.5},
    {"∞", "\\infty ", 2},   {"∈", "\\in ", 2.5},    {"|", "\\vert ", 0.6}, {"max", "\\max ", 4},
    {"cos", "\\cos ", 3.1}, {"⊙", "\\odot ", 2.5},  {"δ", "\\delta ", 1}};

const LatexSign* find_sign(const std::string& text) {
  const auto* const found = std::find_if(std::begin(kLatexSigns), std::end(kLatexSigns),
                                         [&](const LatexSign& sign) { return sign.text == text; });
  return found == std::end(kLatexSigns) ? nullptr : found;
}

std::string command_for(const std::string& text) {
  const LatexSign* const sign = find_sign(text);
  return sign == nullptr ? text : std::string(sign->command);
}

/// Whether pdfLaTeX with T1 fonts has the character: Latin letters and some signs.
bool latex_has(std::uint32_t c) {
  constexpr std::uint32_t kNotInT1[] = {0x126, 0x127, 0x138, 0x13F, 0x140,
                                        0x149, 0x166, 0x167, 0x17F};
  constexpr std::uint32_t kSigns[] = {0x2013, 0x2014, 0x2018, 0x2019, 0x201C,
                                      0x201D, 0x2022, 0x2026, 0x20AC, 0x2192};
  const auto holds = [c](std::span<const std::uint32_t> some) {
    return std::find(some.begin(), some.end(), c) != some.end();
  };
  return c < 0x80 || (c >= 0xA0 && c < 0x180 && !holds(kNotInT1)) || holds(kSigns);
}

/// A replacement for a character that LaTeX lacks: "U+6771". A line may end after it.
std::string latex_code(std::uint32_t c) {
  char text[16];
  std::snprintf(text, sizeof text, "U+%04X", c);
  return std::string("\\texttt{") + text + "}\\allowbreak{}";
}

/// Characters that are special in LaTeX, or that LaTeX prints as others: ' and ` as quotation
/// marks.
constexpr std::pair<std::string_view, std::string_view> kLatexCharacters[] = {
    {"\\", "\\textbackslash{}"},
    {"~", "\\textasciitilde{}"},
    {"^", "\\textasciicircum{}"},
    {"'", "\\textquotesingle{}"},
    {"`", "\\textasciigrave{}"},
    {"␣", "\\textvisiblespace{}"},
    {"{", "\\{"},
    {"}", "\\}"},
    {"$", "\\$"},
    {"&", "\\&"},
    {"#", "\\#"},
    {"%", "\\%"},
    {"_", "\\_"}};

/// One character of a text for LaTeX.
std::string latex_character(const std::string& character, std::uint32_t code) {
  for (const auto& [special, command] : kLatexCharacters)
    if (character == special) return std::string(command);
  return latex_has(code) ? character : latex_code(code);
}

/// Whether T1 fonts join the character with the next one: "--" to a dash, "<<" to a quotation mark.
bool forms_ligatures(const std::string& character) {
  constexpr std::string_view kSome[] = {"-", "–", "<", ">", ",", "‘", "’"};
  return std::find(std::begin(kSome), std::end(kSome), character) != std::end(kSome);
}

std::string latex_label(const std::string& label) {
  return label == "⋮" ? "\\vdots" : "\\text{" + latex_text(label) + "}";
}

std::string latex_matrix(const Math& math) {
  std::string rows, labels;  // labels beside the brackets are as tall as their rows
  for (std::size_t i = 0; i < math.parts.size(); i += math.columns) {
    std::string row;
    for (std::size_t j = 0; j < math.columns; ++j)
      row += (j > 0 ? "& " : "") + latex(math.parts[i + j]);
    rows += (i > 0 ? "\\\\ " : "") + row;
    if (math.row_labels.empty()) continue;
    std::string height;  // '&' separates cells
    for (std::size_t j = 0; j < math.columns; ++j) height += latex(math.parts[i + j]);
    labels += (i > 0 ? "\\\\ " : "") + latex_label(math.row_labels[i / math.columns]) +
              "\\vphantom{" + height + "}";
  }
  if (!labels.empty()) labels = "\\begin{array}{@{}r@{}}" + labels + "\\end{array}\\,";
  return labels + "\\begin{bmatrix}" + rows + "\\end{bmatrix}";
}

std::string element(const std::string& tag, const std::string& inside,
                    const std::string& style = "") {
  return "<" + tag + (style.empty() ? "" : " class=\"" + style + "\"") + ">" + inside + "</" + tag +
         ">";
}

/// A name with its primes and index, if any. Primes follow the name as they are: raised as
/// superscripts, those of fonts for text would be too high and too small.
std::string mathml_name(const std::string& text, const std::string& index = "") {
  const std::size_t letters = text.find_last_not_of('\'') + 1;
  std::string name = element("mi", markup(text.substr(0, letters)), letters > 1 ? "word" : "");
  std::string primes;
  for (std::size_t i = letters; i < text.size(); ++i) primes += "′";
  if (!primes.empty()) name = element("mrow", name + element("mtext", primes));
  return index.empty() ? name : element("msub", name + index);
}

/// Brackets keep their size beside a matrix; infinity is a number, without space around it.
std::string mathml_sign(const std::string& text) {
  if (text == "∞") return element("mn", text);
  const bool is_bracket = text == "(" || text == ")";
  return (is_bracket ? "<mo stretchy=\"false\">" : "<mo>") + markup(text) + "</mo>";
}

std::string mathml_label(const std::string& label, const std::string& style) {
  return element("mtd", element("mtext", markup(label)), style);
}

/// A table in which the brackets are borders of cells without contents.
std::string mathml_matrix(const Math& math) {
  const bool labelled = !math.row_labels.empty();
  const std::size_t last = math.parts.size() - math.columns;
  std::string rows;
  if (!math.column_labels.empty()) {
    std::string cells = element("mtd", "");
    if (labelled) cells += element("mtd", "");
    for (const std::string& label : math.column_labels) cells += mathml_label(label, "label");
    rows += element("mtr", cells);
  }
  for (std::size_t i = 0; i < math.parts.size(); i += math.columns) {
    const std::string edge = std::string(i == 0 ? " first" : "") + (i == last ? " last" : "");
    std::string cells =
        labelled ? mathml_label(math.row_labels[i / math.columns], "label side") : "";
    cells += element("mtd", "", "open" + edge);
    for (std::size_t j = i; j < i + math.columns; ++j)
      cells += element("mtd", mathml(math.parts[j]));
    rows += element("mtr", cells + element("mtd", "", "close" + edge));
  }
  return element("mtable", rows, "matrix");
}

/// HTML inside MathML: a root sign as tall as the formula, and a line above the formula.
std::string mathml_root(const Math& inside) {
  return "<mtext><span class=\"root\" role=\"img\" aria-label=\"square root of " +
         markup(plain_text(inside)) +
         "\"><svg viewBox=\"0 0 10 20\" preserveAspectRatio=\"none\"><path d=\"M0 12L3 11L6 "
         "19L10 0\"/></svg><span class=\"inside\"><math>" +
         mathml(inside) + "</math></span></span></mtext>";
}

std::string mathml_parentheses(const Math& inside) {
  return "<mtable displaystyle=\"true\">" +
         element("mtr", element("mtd", mathml(inside), "parentheses")) + "</mtable>";
}

std::string written_parts(const Math& math, std::string (*write)(const Math&)) {
  std::string text;
  for (const Math& part : math.parts) text += write(part);
  return text;
}

Math of(Math::Kind kind, std::vector<Math> parts) { return {kind, "", std::move(parts), 0}; }

}  // namespace

namespace math {

Math name(const std::string& text) { return {Math::Kind::name, text}; }
Math sign(const std::string& text) { return {Math::Kind::sign, text}; }
Math row(std::vector<Math> parts) { return of(Math::Kind::row, std::move(parts)); }
Math superscript(Math base, Math power) {
  return of(Math::Kind::superscript, {std::move(base), std::move(power)});
}
Math subscript(Math base, Math index) {
  return of(Math::Kind::subscript, {std::move(base), std::move(index)});
}
Math fraction(Math above, Math below) {
  return of(Math::Kind::fraction, {std::move(above), std::move(below)});
}
Math root(Math inside) { return of(Math::Kind::root, {std::move(inside)}); }
Math parentheses(Math inside) { return of(Math::Kind::parentheses, {std::move(inside)}); }

Math matrix(std::vector<Math> cells, std::size_t columns) {
  return {Math::Kind::matrix, "", std::move(cells), columns};
}

Math blank() { return {Math::Kind::blank}; }

namespace {

/// The text without zeros at the end of a fraction: "0.5" for "0.500", "12" for "12.".
std::string without_zeros(std::string text) {
  const std::size_t e = std::min(text.find('e'), text.size());
  std::size_t end = text.find_last_not_of('0', e - 1) + 1;
  if (text[end - 1] == '.') --end;
  return text.erase(end, e - end);
}

/// Large numbers, and small ones of which no digit would be left, have an exponent.
std::string decimal_text(double size, int decimals) {
  constexpr double kLarge = 1e6;
  std::string text = without_zeros(rounded_text(size, decimals, Notation::positional));
  if (size < kLarge && (text != "0" || size == 0)) return text;
  return without_zeros(rounded_text(size, decimals, Notation::scientific));
}

}  // namespace

Math number(double value, std::optional<int> decimals) {
  if (std::isnan(value)) return name("NaN");
  const double positive = std::abs(value);
  const std::string digits = std::isinf(value) ? "∞"
                             : decimals        ? decimal_text(positive, *decimals)
                                               : six_digits(positive);
  const std::size_t e = digits.find('e');
  Math size = std::isinf(value) ? sign(digits) : Math{Math::Kind::number, digits.substr(0, e)};
  if (e != std::string::npos) {
    const double power = std::stod(digits.substr(e + 1));
    size = row({size, sign("·"), superscript({Math::Kind::number, "10"}, number(power))});
  }
  if (std::signbit(value) && value != 0) size = row({sign("−"), size});
  size.value = value;
  return size;
}

Math factor(double value) {
  if (!(value < 0)) return number(value);
  return row({sign("("), number(value), sign(")")});  // GCC 12 destroys parts twice after ?:
}

void set_decimals(Math& math, int decimals) {
  if (math.value) math = number(*math.value, decimals);
  for (Math& part : math.parts) set_decimals(part, decimals);
}

}  // namespace math

namespace {

constexpr double kWidestLetter = 1.6;  // of most words, in digits

/// Of a name, a number or a sign.
double width_of_text(const Math& math) {
  if (const LatexSign* const sign = find_sign(math.text)) return sign->width;
  double sum = 0;
  for (const char c : math.text)
    sum += c == '.' || c == '\''  ? 0.6
           : c == '(' || c == ')' ? 0.8
           : c >= '0' && c <= '9' ? 1
                                  : kWidestLetter;
  return sum;
}

double width_of_label(const std::string& label) {
  constexpr double kCode = 6.3;  // "U+6771"
  double sum = 0;
  for (std::size_t i = 0; i < label.size(); i += std::max<std::size_t>(utf8_length(label, i), 1))
    sum += latex_has(code_point(label, i)) ? kWidestLetter : kCode;
  return sum;
}

double width_of_matrix(const Math& math) {
  constexpr double kColumnGap = 2, kBrackets = 2.2;
  std::vector<double> columns(math.columns);
  for (std::size_t i = 0; i < math.parts.size(); ++i) {
    double& column = columns[i % math.columns];
    column = std::max(column, latex_width(math.parts[i]) + kColumnGap);
  }
  double labels = 0;
  for (const std::string& label : math.row_labels) labels = std::max(labels, width_of_label(label));
  return std::accumulate(columns.begin(), columns.end(), labels + kBrackets);
}

double width_of_parts(const Math& math) {
  double sum = 0;
  for (const Math& part : math.parts) sum += latex_width(part);
  return sum;
}

}  // namespace

double latex_width(const Math& math) {
  constexpr double kIndexScale = 0.8, kFractionSpace = 0.5, kRootSign = 2, kTallParentheses = 3.5;
  switch (math.kind) {
    case Math::Kind::name:
    case Math::Kind::number:
    case Math::Kind::sign:
      return width_of_text(math);
    case Math::Kind::superscript:
    case Math::Kind::subscript:
      return latex_width(math.parts[0]) + kIndexScale * latex_width(math.parts[1]);
    case Math::Kind::fraction:
      return std::max(latex_width(math.parts[0]), latex_width(math.parts[1])) + kFractionSpace;
    case Math::Kind::root:
      return width_of_parts(math) + kRootSign;
    case Math::Kind::parentheses:
      return width_of_parts(math) + kTallParentheses;
    case Math::Kind::blank:
      return 4;
    case Math::Kind::matrix:
      return width_of_matrix(math);
    case Math::Kind::row:
      break;
  }
  return width_of_parts(math);
}

std::string latex(const Math& math) {
  switch (math.kind) {
    case Math::Kind::name:
      if (const std::string command = command_for(math.text); command != math.text) return command;
      return math.text.find_first_not_of('\'', 1) == std::string::npos
                 ? math.text
                 : "\\mathrm{" + math.text + "}";
    case Math::Kind::number:
      return math.text;
    case Math::Kind::sign:
      return command_for(math.text);
    case Math::Kind::row:
      return written_parts(math, latex);
    case Math::Kind::superscript:
      return latex(math.parts[0]) + "^{" + latex(math.parts[1]) + "}";
    case Math::Kind::subscript:
      return latex(math.parts[0]) + "_{" + latex(math.parts[1]) + "}";
    case Math::Kind::fraction:
      return "\\frac{" + latex(math.parts[0]) + "}{" + latex(math.parts[1]) + "}";
    case Math::Kind::root:
      return "\\sqrt{" + latex(math.parts[0]) + "}";
    case Math::Kind::parentheses:
      return "\\left(" + latex(math.parts[0]) + "\\right)";
    case Math::Kind::blank:
      return "\\underline{\\hspace{2em}}";
    case Math::Kind::matrix:
      break;
  }
  return latex_matrix(math);
}

std::string mathml(const Math& math) {
  switch (math.kind) {
    case Math::Kind::name:
      return mathml_name(math.text);
    case Math::Kind::number:
      return element("mn", markup(math.text));
    case Math::Kind::sign:
      return mathml_sign(math.text);
    case Math::Kind::row:
      return element("mrow", written_parts(math, mathml));
    case Math::Kind::superscript:
      return element("msup", written_parts(math, mathml));
    case Math::Kind::subscript:
      if (math.parts[0].kind == Math::Kind::name)
        return mathml_name(math.parts[0].text, mathml(math.parts[1]));
      return element("msub", written_parts(math, mathml));
    case Math::Kind::fraction:
      return element("mfrac", written_parts(math, mathml));
    case Math::Kind::root:
      return mathml_root(math.parts[0]);
    case Math::Kind::parentheses:
      return mathml_parentheses(math.parts[0]);
    case Math::Kind::blank:
      return "<mspace class=\"blank\" width=\"2.6em\" height=\"1.3em\"/>";
    case Math::Kind::matrix:
      break;
  }
  return mathml_matrix(math);
}

namespace {

bool is_sign(const Math& math, std::string_view signs) {
  return math.kind == Math::Kind::sign && !math.text.empty() &&
         (" " + std::string(signs) + " ").find(" " + math.text + " ") != std::string::npos;
}

/// Signs between two terms have a space on both sides; names and functions are separated.
std::string plain_row(const Math& math) {
  std::string text;
  for (std::size_t i = 0; i < math.parts.size(); ++i) {
    const Math& part = math.parts[i];
    const Math* previous = i > 0 ? &math.parts[i - 1] : nullptr;
    const bool between = i > 0 && is_sign(part, "+ · − ∈ …");
    const bool after = previous != nullptr && i > 1 && is_sign(*previous, "+ · − ∈ …");
    const bool operands = previous != nullptr && previous->kind != Math::Kind::sign &&
                          part.kind != Math::Kind::sign && part.kind != Math::Kind::parentheses;
    const bool function = previous != nullptr && is_sign(*previous, "Σ max");
    if (between || after || operands || function) text += " ";
    text += plain_text(part);
  }
  return text;
}

/// In parentheses if it has several terms.
std::string plain_term(const Math& math) {
  const std::string text = plain_text(math);
  const bool has_terms = math.kind == Math::Kind::row || math.kind == Math::Kind::fraction;
  return has_terms && text.find(' ') != std::string::npos ? "(" + text + ")" : text;
}

}  // namespace

std::string plain_text(const Math& math) {
  switch (math.kind) {
    case Math::Kind::name:
    case Math::Kind::number:
    case Math::Kind::sign:
      return math.text;
    case Math::Kind::row:
      return plain_row(math);
    case Math::Kind::superscript:
      return plain_term(math.parts[0]) + "^" + plain_term(math.parts[1]);
    case Math::Kind::subscript:
      if (math.parts[1].kind == Math::Kind::row)
        return plain_text(math.parts[0]) + "[" + plain_text(math.parts[1]) + "]";
      return plain_text(math.parts[0]) + "_" + plain_text(math.parts[1]);
    case Math::Kind::fraction:
      return plain_term(math.parts[0]) + " / " + plain_term(math.parts[1]);
    case Math::Kind::root:
      return "√" + plain_term(math.parts[0]);
    case Math::Kind::parentheses:
      return "(" + plain_text(math.parts[0]) + ")";
    case Math::Kind::blank:
      return "____";
    case Math::Kind::matrix:
      break;
  }
  return "[" + std::to_string(math.parts.size() / math.columns) + " × " +
         std::to_string(math.columns) + "]";
}

std::string latex_text(const std::string& text) {
  std::string out;
  bool may_join = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::string letter = text.substr(i, std::max<std::size_t>(utf8_length(text, i), 1));
    const bool joins = forms_ligatures(letter);
    if (may_join && joins) out += "{}";
    out += latex_character(letter, code_point(text, i));
    may_join = joins;
    i += letter.size();
  }
  return out;
}

namespace {

/// "\u003c": for characters of the Basic Multilingual Plane.
void append_escape(std::string& out, unsigned code) {
  out += "\\u";
  append_hex(out, static_cast<std::uint8_t>(code >> 8));
  append_hex(out, static_cast<std::uint8_t>(code & 0xFFu));
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

}  // namespace

std::string markup(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const char c = text[i];
    const std::string_view character = text.substr(i, length);
    if (length == 0 || is_control(c) || character == "\uFFFE" || character == "\uFFFF")
      out += "\uFFFD";
    else if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
      out += "&#" + std::to_string(static_cast<int>(c)) + ";";
    else
      out += character;
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string script_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const std::string_view character = text.substr(i, std::max<std::size_t>(length, 1));
    if (length == 0)
      append_escape(out, 0xFFFD);
    else if (character == "\u2028" || character == "\u2029")
      append_escape(out, character == "\u2028" ? 0x2028 : 0x2029);
    else if (is_control(text[i]) ||
             std::string_view("<>&\"\\'").find(text[i]) != std::string_view::npos)
      append_escape(out, static_cast<unsigned char>(text[i]));
    else
      out += character;
    i += character.size();
  }
  return out + "\"";
}

}  // namespace attn
