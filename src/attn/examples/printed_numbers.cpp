#include "attn/examples/printed_numbers.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace attn {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The number of digits after the decimal point.
int decimals(std::string_view number) {
  const std::size_t point = number.find('.'), end = std::min(number.find('e'), number.size());
  return point == std::string_view::npos ? 0 : static_cast<int>(end - point - 1);
}

int exponent(std::string_view number) {
  const std::size_t e = number.find('e');
  int value = 0;
  if (e == std::string_view::npos) return value;
  const std::size_t sign = number[e + 1] == '+' ? 2 : 1;
  std::from_chars(number.data() + e + sign, number.data() + number.size(), value);
  return value;
}

/// Clamps to the largest double, which may be printed as 1.8e+308, a larger number.
double clamp_to_double(const std::string& number) {
  const double read = std::strtod(number.c_str(), nullptr);
  if (!std::isinf(read) || exponent(number) > std::numeric_limits<double>::max_exponent10)
    return read;
  return std::copysign(std::numeric_limits<double>::max(), read);
}

}  // namespace

std::vector<PrintedNumber> printed_numbers(std::string_view text) {
  std::vector<PrintedNumber> numbers;
  int most = 0;
  for (std::size_t at = 0; at < text.size();) {
    PrintedNumber number;
    const char* start = text.data() + at;
    const auto [rest, error] = std::from_chars(start, text.data() + text.size(), number.value);
    const bool in_word = at > 0 && is_word(text[at - 1]);
    const bool into_word = rest != text.data() + text.size() && is_word(*rest);
    if (error == std::errc::invalid_argument || in_word || into_word) {
      ++at;
      continue;
    }
    number.text.assign(start, rest);
    if (error != std::errc()) number.value = clamp_to_double(number.text);
    most = std::max(most, decimals(number.text));
    numbers.push_back(number);
    at += number.text.size();
  }
  for (PrintedNumber& number : numbers)
    number.half_unit = 0.5 * std::pow(10.0, exponent(number.text) - most);
  return numbers;
}

bool is_printed_as(double value, const PrintedNumber& number) {
  if (!std::isfinite(value) || !std::isfinite(number.value))
    return value == number.value || (std::isnan(value) && std::isnan(number.value));
  // Reading the printed number back rounds once.
  const double rounding = std::numeric_limits<double>::epsilon() * std::abs(value);
  return std::abs(value - number.value) <= number.half_unit + rounding;
}

}  // namespace attn
