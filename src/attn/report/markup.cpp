#include "attn/report/markup.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"

namespace attn {
namespace {

/// Signs with a LaTeX command.
constexpr std::pair<std::string_view, std::string_view> kCommands[] = {
    {"·", "\\cdot "},  {"×", "\\times "}, {"Σ", "\\sum "},   {"…", "\\dots "},
    {"⋮", "\\vdots "}, {"⋱", "\\ddots "}, {"−", "-"},        {"∞", "\\infty "},
    {"∈", "\\in "},    {"|", "\\vert "},  {"max", "\\max "}, {"cos", "\\cos "}};

std::string command_for(const std::string& text) {
  for (const auto& [sign, command] : kCommands)
    if (text == sign) return std::string(command);
  return text;
}

std::string latex_matrix(const Math& math) {
  std::string text = "\\begin{bmatrix}";
  for (std::size_t i = 0; i < math.parts.size(); ++i) {
    if (i > 0) text += i % math.columns == 0 ? "\\\\ " : "& ";
    text += latex(math.parts[i]);
  }
  return text + "\\end{bmatrix}";
}

std::string element(const std::string& tag, const std::string& inside) {
  return "<" + tag + ">" + inside + "</" + tag + ">";
}

/// A name with its primes and index, if any. Primes are separate signs, so that the letter before
/// them is set as a letter.
std::string mathml_name(const std::string& text, const std::string& index = "") {
  const std::size_t letters = text.find_last_not_of('\'') + 1;
  const std::string name = element("mi", markup(text.substr(0, letters)));
  std::string primes;
  for (std::size_t i = letters; i < text.size(); ++i) primes += "′";
  const std::string raised = element("mo", primes);
  if (primes.empty()) return index.empty() ? name : element("msub", name + index);
  return index.empty() ? element("msup", name + raised) : element("msubsup", name + index + raised);
}

std::string mathml_matrix(const Math& math) {
  std::string rows;
  for (std::size_t i = 0; i < math.parts.size(); i += math.columns) {
    std::string cells;
    for (std::size_t j = i; j < i + math.columns; ++j)
      cells += element("mtd", mathml(math.parts[j]));
    rows += element("mtr", cells);
  }
  return "<mrow><mo>[</mo>" + element("mtable", rows) + "<mo>]</mo></mrow>";
}

std::string all(const Math& math, std::string (*write)(const Math&)) {
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

Math matrix(std::vector<Math> cells, std::size_t columns) {
  return {Math::Kind::matrix, "", std::move(cells), columns};
}

Math number(double value) {
  if (std::isnan(value)) return name("NaN");
  std::string digits = std::isinf(value) ? "∞" : six_digits(std::abs(value));
  const std::size_t e = digits.find('e');
  Math size = std::isinf(value) ? sign(digits) : Math{Math::Kind::number, digits.substr(0, e)};
  if (e != std::string::npos) {
    const double power = std::stod(digits.substr(e + 1));
    size = row({size, sign("·"), superscript({Math::Kind::number, "10"}, number(power))});
  }
  return std::signbit(value) && value != 0 ? row({sign("−"), size}) : size;
}

Math factor(double value) {
  return value < 0 ? row({sign("("), number(value), sign(")")}) : number(value);
}

}  // namespace math

double width(const Math& math) {
  constexpr double kIndexScale = 0.7, kColumnGap = 2;
  std::vector<double> columns(std::max<std::size_t>(math.columns, 1));
  double sum = 0, most = 0;
  for (std::size_t i = 0; i < math.parts.size(); ++i) {
    const double part = width(math.parts[i]);
    sum += part;
    most = std::max(most, part);
    double& column = columns[i % columns.size()];
    column = std::max(column, part + kColumnGap);
  }
  switch (math.kind) {
    case Math::Kind::name:
    case Math::Kind::number:
      return static_cast<double>(math.text.size());
    case Math::Kind::sign:
      return 1;
    case Math::Kind::superscript:
    case Math::Kind::subscript:
      return width(math.parts[0]) + kIndexScale * width(math.parts[1]);
    case Math::Kind::fraction:
      return most;
    case Math::Kind::matrix:
      return std::accumulate(columns.begin(), columns.end(), 0.0);
    default:
      return sum + 1;
  }
}

std::string latex(const Math& math) {
  switch (math.kind) {
    case Math::Kind::name:
      return math.text.find_first_not_of('\'', 1) == std::string::npos
                 ? math.text
                 : "\\mathrm{" + math.text + "}";
    case Math::Kind::number:
      return math.text;
    case Math::Kind::sign:
      return command_for(math.text);
    case Math::Kind::row:
      return all(math, latex);
    case Math::Kind::superscript:
      return latex(math.parts[0]) + "^{" + latex(math.parts[1]) + "}";
    case Math::Kind::subscript:
      return latex(math.parts[0]) + "_{" + latex(math.parts[1]) + "}";
    case Math::Kind::fraction:
      return "\\frac{" + latex(math.parts[0]) + "}{" + latex(math.parts[1]) + "}";
    case Math::Kind::root:
      return "\\sqrt{" + latex(math.parts[0]) + "}";
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
      return element("mo", markup(math.text));
    case Math::Kind::row:
      return element("mrow", all(math, mathml));
    case Math::Kind::superscript:
      return element("msup", all(math, mathml));
    case Math::Kind::subscript:
      if (math.parts[0].kind == Math::Kind::name)
        return mathml_name(math.parts[0].text, mathml(math.parts[1]));
      return element("msub", all(math, mathml));
    case Math::Kind::fraction:
      return element("mfrac", all(math, mathml));
    case Math::Kind::root:
      return element("msqrt", all(math, mathml));
    case Math::Kind::matrix:
      break;
  }
  return mathml_matrix(math);
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

void append_base85(std::string& out, std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|";
  static_assert(kDigits.size() == 85);
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    std::uint32_t number = 0;
    for (std::size_t k = 0; k < 4 && i + k < bytes.size(); ++k)
      number |= std::to_integer<std::uint32_t>(bytes[i + k]) << (8 * k);
    char digits[5];
    for (std::size_t k = 5; k-- > 0; number /= 85) digits[k] = kDigits[number % 85];
    out.append(digits, 5);
  }
}

void append_base64(std::string& out, std::span<const std::byte> bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += k <= count ? kLetters[group >> (18 - 6 * k) & 63u] : '=';
  }
}

}  // namespace attn
