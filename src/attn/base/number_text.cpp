#include "attn/base/number_text.h"

#include <algorithm>
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
  const char* const end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific).ptr;
  const char* e = end - 1;  // the exponent is the shorter part
  while (*e != 'e') --e;
  int exponent = 0;
  for (const char* digit = e + 2; digit < end; ++digit) exponent = 10 * exponent + (*digit - '0');
  if (e[1] == '-') exponent = -exponent;
  if (exponent < -4 || exponent >= 16) {
    out.append(std::string_view(buffer.data(), end));
    return;
  }
  // "-1.234e+01": a sign, perhaps, one digit, a point and more digits where there are any.
  std::array<char, 48> text;
  char* to = text.data();
  const char* from = buffer.data();
  if (*from == '-') *to++ = *from++;
  const char first = *from;
  const int more = e - from > 1 ? static_cast<int>(e - from) - 2 : 0;
  from += 2;
  if (exponent < 0) {
    to = std::copy_n("0.0000", 1 - exponent, to);
    *to++ = first;
    to = std::copy_n(from, more, to);
  } else {
    const int before_point = std::min(exponent, more);
    *to++ = first;
    to = std::copy_n(from, before_point, to);
    to = std::fill_n(to, exponent - before_point, '0');
    *to++ = '.';
    to = more > before_point ? std::copy_n(from + before_point, more - before_point, to)
                             : std::fill_n(to, 1, '0');
  }
  out.append(text.data(), to);
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
