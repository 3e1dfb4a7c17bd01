#include "attn/base/digits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace attn {
namespace {

/// d.ddd * 10^exponent, without zeros at the end; zero is "0" and 0.
struct Decimal {
  bool negative = false;
  std::string digits;
  int exponent = 0;
};

template <class... Rule>
std::string converted(std::size_t room, Rule... rule) {
  std::string text(room, '\0');
  const auto result = std::to_chars(text.data(), text.data() + text.size(), rule...);
  text.resize(static_cast<std::size_t>(result.ptr - text.data()));
  return text;
}

/// From "-1.2300e-05".
Decimal parse_scientific(const std::string& text) {
  Decimal decimal;
  const std::size_t e = text.find('e');
  decimal.negative = text[0] == '-';
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') decimal.digits += c;
  while (decimal.digits.size() > 1 && decimal.digits.back() == '0') decimal.digits.pop_back();
  decimal.exponent = std::atoi(text.c_str() + e + 1);
  return decimal;
}

bool reads_back(const std::string& text, double value, DType dtype) {
  const char* end = text.data() + text.size();
  if (dtype == DType::f32) {
    float read = 0;
    std::from_chars(text.data(), end, read);
    return read == static_cast<float>(value);
  }
  double read = 0;
  std::from_chars(text.data(), end, read);
  return dtype == DType::f16 ? double(Half(read)) == value : read == value;
}

/// std::to_chars does not know the type; five significant digits name every half. Below a power of
/// two the gap is half as wide as above, so that where the nearest decimal misses the value, the
/// next one above may still name it: rounding a little more than the value finds it.
std::string shortest_half(double value) {
  const double above = value * (1 + 0.75 * 0x1p-11);
  for (int places = 0;; ++places)
    for (const double near : {value, above}) {
      const std::string text = rounded_text(near, places, Notation::scientific);
      if (places == 4 || reads_back(text, value, DType::f16)) return text;
    }
}

Decimal shortest(double value, DType dtype) {
  constexpr std::size_t kRoom = 32;
  if (dtype == DType::f16) return parse_scientific(shortest_half(value));
  if (dtype == DType::f32)
    return parse_scientific(
        converted(kRoom, static_cast<float>(value), std::chars_format::scientific));
  return parse_scientific(converted(kRoom, value, std::chars_format::scientific));
}

/// Digits after the point; negative where zeros stand between the last digit and the point.
int places_of(const Decimal& decimal, Notation notation) {
  const int after_first = static_cast<int>(decimal.digits.size()) - 1;
  return notation == Notation::scientific ? after_first : after_first - decimal.exponent;
}

std::string with_exponent(const std::string& mantissa, int exponent) {
  const std::string digits = std::to_string(std::abs(exponent));
  return mantissa + (exponent < 0 ? "e-" : "e+") + (digits.size() < 2 ? "0" : "") + digits;
}

std::string to_text(const Decimal& decimal, Notation notation) {
  const std::string sign = decimal.negative ? "-" : "";
  std::string digits = decimal.digits;
  if (notation == Notation::scientific)
    return with_exponent(sign + digits.insert(1, 1, '.'), decimal.exponent);
  if (decimal.exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-decimal.exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(decimal.exponent) + 1;
  if (digits.size() < whole) digits.resize(whole, '0');
  return sign + digits.insert(whole, 1, '.');
}

std::string without_zeros(const std::string& text) {
  const std::size_t end = std::min(text.find('e'), text.size());
  const std::size_t kept = text.find_last_not_of('0', end - 1) + 1;
  return text.substr(0, kept) + text.substr(end);
}

/// At more places than name the value. For the same reason a power of two, rounded there, may be
/// nearer to its neighbour below; then zeros follow the shortest digits.
std::string lengthened(double value, const Decimal& decimal, int places, DType dtype,
                       Notation notation) {
  std::string text = rounded_text(value, places, notation);
  if (reads_back(text, value, dtype)) return text;
  text = to_text(decimal, notation);
  const std::size_t end = std::min(text.find('e'), text.size());
  return text.insert(end, static_cast<std::size_t>(places - places_of(decimal, notation)), '0');
}

}  // namespace

std::string shortest_text(double value, DType dtype, Notation notation) {
  return to_text(shortest(value, dtype), notation);
}

std::string rounded_text(double value, int places, Notation notation) {
  const bool scientific = notation == Notation::scientific;
  constexpr std::size_t kRoom = 320;  // sign, 309 digits before the point, exponent
  std::string text =
      converted(kRoom + static_cast<std::size_t>(places), value,
                scientific ? std::chars_format::scientific : std::chars_format::fixed, places);
  if (places == 0) text.insert(std::min(text.find('e'), text.size()), 1, '.');
  return text;
}

std::string number_text(double value, DType dtype, Notation notation, const DigitRule& rule) {
  std::string text;
  if (!rule.unique) {
    text = rounded_text(value, rule.most, notation);
  } else {
    const Decimal decimal = shortest(value, dtype);
    const int places = places_of(decimal, notation);
    if (rule.most >= 0 && places > rule.most)
      text = rounded_text(value, rule.most, notation);
    else if (places < rule.fewest)
      text = lengthened(value, decimal, rule.fewest, dtype, notation);
    else
      text = to_text(decimal, notation);
  }
  return rule.trim_zeros ? without_zeros(text) : text;
}

std::string scalar_text(double value, DType dtype) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double magnitude = std::fabs(value);
  if (magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16)) {
    const std::string text = shortest_text(value, dtype, Notation::positional);
    return text.back() == '.' ? text + "0" : text;
  }
  std::string text = shortest_text(value, dtype, Notation::scientific);
  const std::size_t point = text.find(".e");
  return point == std::string::npos ? text : text.erase(point, 1);
}

}  // namespace attn
