#include "attn/io/number_text.h"

#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

namespace attn {
namespace {

/// std::to_chars alone writes 100000.0 as "1e+05" and 123456789.0f with digits that are not the
/// float's, so the digits are taken from its scientific form and laid out here.
template <class T>
void append_float(std::string& out, T value) {
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  if (exponent < -4 || exponent >= 16) {
    out += text;
    return;
  }
  if (text[0] == '-') out += '-', text.remove_prefix(1);
  std::array<char, 32> digits;
  digits[0] = text[0];
  const std::string_view fraction = text.substr(2, std::max(text.find('e'), std::size_t{2}) - 2);
  const std::size_t count = 1 + fraction.copy(digits.data() + 1, fraction.size());
  if (exponent < 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-exponent - 1), '0');
    out.append(digits.data(), count);
    return;
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  const std::size_t before = std::min(count, whole);
  out.append(digits.data(), before).append(whole - before, '0');
  out += '.';
  out.append(count > whole ? std::string_view(digits.data() + whole, count - whole) : "0");
}

/// `value` rounded to so many decimal digits.
double rounded(double value, int digits) {
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific, digits - 1);
  std::from_chars(buffer.data(), end.ptr, value);
  return value;
}

/// The double with the fewest digits among those that round to `value`: as its own shortest text
/// has the same digits, printing it prints the 16-bit number. The doubles that round to a power of
/// two reach twice as far up as down, so rounding their middle may succeed where rounding `value`
/// leads out of them.
template <class T>
double fewest_digits(T value) {
  const auto exact = static_cast<double>(value);
  T above = value;
  ++above.bits;
  const double middle = exact + (static_cast<double>(above) - exact) / 8;
  constexpr int kEnough = 5;  // to tell any two f16 apart, or any two bf16
  for (int digits = 1; digits < kEnough; ++digits)
    for (const double from : {exact, middle})
      if (const double brief = rounded(from, digits); T(brief).bits == value.bits) return brief;
  return rounded(exact, kEnough);
}

}  // namespace

void append_number(std::string& out, double value) { append_float(out, value); }
void append_number(std::string& out, float value) { append_float(out, value); }
void append_number(std::string& out, Half value) { append_float(out, fewest_digits(value)); }
void append_number(std::string& out, BFloat16 value) { append_float(out, fewest_digits(value)); }

}  // namespace attn
