#include "attn/base/number_text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "attn/base/error.h"
#include "attn/base/shortest_decimal.h"

namespace attn {
namespace {

/// `value` rounded to `digits` significant decimal digits.
double rounded(double value, int digits) {
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific, digits - 1);
  std::from_chars(buffer.data(), end.ptr, value);
  return value;
}

/// The double with the fewest digits among those that round to `value`. The shortest digits of this
/// double are those of the f16. The interval of doubles that round to a power of two extends twice
/// as far up as down, so rounding its middle may give a member of the interval where rounding
/// `value` does not.
double fewest_digits(Half value) {
  const auto exact = static_cast<double>(value);
  Half above = value;
  ++above.bits;
  const double middle = exact + (static_cast<double>(above) - exact) / 8;
  constexpr int kHalfDigits = 5;  // distinguish any two f16
  for (int digits = 1; digits < kHalfDigits; ++digits)
    for (const double from : {exact, middle})
      if (const double brief = rounded(from, digits); Half(brief).bits == value.bits) return brief;
  return rounded(exact, kHalfDigits);
}

/// The shortest digits in scientific form: "-1.234e+01".
struct Scientific {
  std::array<char, 32> buffer;
  std::size_t size = 0;

  template <class T>
  explicit Scientific(T value) {
    char* const begin = buffer.data();
    const auto result =
        std::to_chars(begin, begin + buffer.size(), value, std::chars_format::scientific);
    size = static_cast<std::size_t>(result.ptr - begin);
  }
  std::string_view text() const { return {buffer.data(), size}; }
};

double double_with_digits(std::string_view text) {
  double value = 0;
  std::from_chars(text.begin(), text.end(), value);
  return value;
}

/// The 8 digits of a number below 10^8, a byte for each, the first one in the lowest byte. Each
/// step divides the parts of the word by 100^2, 100 and 10: the quotient stays, and the rest moves
/// up.
std::uint64_t eight_digits(std::uint64_t number) {
  std::uint64_t parts = number / 10000 | number % 10000 << 32;
  std::uint64_t quotients = (parts * 5243 >> 19) & 0x7F0000007F;  // by 100
  parts = quotients | (parts - 100 * quotients) << 16;
  quotients = (parts * 103 >> 10) & 0xF000F000F000F;  // by 10
  return quotients | (parts - 10 * quotients) << 8;
}

// How many bytes of a word precede its first one that is not 0, and how many follow its last one.
std::ptrdiff_t zeros_before(std::uint64_t word) { return std::countr_zero(word) / 8; }
std::ptrdiff_t zeros_behind(std::uint64_t word) { return std::countl_zero(word) / 8; }

void write_word(char* at, std::uint64_t word) { std::memcpy(at, &word, sizeof word); }

/// Inserts a '.' behind `count` digits, which move one byte to the left.
void insert_point(char* digits, std::size_t count) {
  if (count < 8) {  // without a call
    std::uint64_t word = 0;
    std::memcpy(&word, digits, sizeof word);
    const std::uint64_t moved = word & ((std::uint64_t{1} << 8 * count) - 1);
    write_word(digits - 1, moved | std::uint64_t{'.'} << 8 * count | (word ^ moved) << 8);
  } else {
    std::memmove(digits - 1, digits, count);
    digits[count - 1] = '.';
  }
}

/// Writes a number from 1e-4 to 1e16, or 0, without an exponent.
void append_positional(std::string& out, bool is_negative, const ShortDecimal& number) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t kRoom = 8, kDigits = 17;  // for "-0.000", and zeros in front
  constexpr std::uint64_t kHalf = 100'000'000;    // 8 digits
  constexpr std::uint64_t kZeros = 0x3030303030303030;
  const std::uint64_t front = number.digits / kHalf;
  const std::uint64_t first = front / kHalf, high = eight_digits(front % kHalf),
                      low = eight_digits(number.digits % kHalf);
  std::array<char, kRoom + kDigits + 24> text;
  char* const start = text.data() + kRoom;
  write_word(start - 8, kZeros);
  start[0] = static_cast<char>('0' + first);
  write_word(start + 1, high | kZeros), write_word(start + 9, low | kZeros);
  for (std::size_t i = 0; i < 3; ++i) write_word(start + kDigits + 8 * i, kZeros);

  char* const digits = start + (first != 0  ? 0
                                : high != 0 ? 1 + zeros_before(high)
                                            : std::min<std::ptrdiff_t>(9 + zeros_before(low), 16));
  char* end = start + (low != 0 ? 17 - zeros_behind(low) : high != 0 ? 9 - zeros_behind(high) : 1);
  const std::ptrdiff_t before_point = start + kDigits - digits + number.exponent;
  char* begin = digits;
  if (before_point <= 0) {
    begin += before_point - 2;
    begin[1] = '.';
  } else if (before_point < end - digits) {
    insert_point(digits, static_cast<std::size_t>(before_point));
    --begin;
  } else {
    end = digits + before_point + 2;
    end[-2] = '.';
  }
  if (is_negative) *--begin = '-';
  out.append(begin, static_cast<std::size_t>(end - begin));
}

template <class T>
void append_float(std::string& out, T value) {
  const T size = std::fabs(value);
  if ((size > 0 && size < static_cast<T>(1e-4)) || size >= static_cast<T>(1e16))
    out += Scientific(value).text();
  else if constexpr (std::is_same_v<T, float>)
    append_float(out, double_with_digits(Scientific(value).text()));
  else
    append_positional(out, std::signbit(value),
                      size == 0 ? ShortDecimal{0, 0} : shortest_decimal(size));
}

/// d.ddd * 10^exponent, without zeros at the end; zero is "0" and 0.
struct Decimal {
  bool negative = false;
  std::string digits;
  int exponent = 0;
};

/// From "-1.2300e-05".
Decimal parse_scientific(std::string_view text) {
  Decimal decimal;
  const std::size_t e = text.find('e');
  decimal.negative = text[0] == '-';
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') decimal.digits += c;
  while (decimal.digits.size() > 1 && decimal.digits.back() == '0') decimal.digits.pop_back();
  const bool has_plus = text[e + 1] == '+';
  std::from_chars(text.data() + e + (has_plus ? 2 : 1), text.data() + text.size(),
                  decimal.exponent);
  return decimal;
}

Scientific scientific(double value, DType dtype) {
  if (dtype == DType::f16) return Scientific(fewest_digits(Half(value)));
  if (dtype == DType::f32) return Scientific(static_cast<float>(value));
  return Scientific(value);
}

Decimal shortest(double value, DType dtype) {
  return parse_scientific(scientific(value, dtype).text());
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

/// Digits after the point; negative where zeros come between the last digit and the point.
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

/// The text with more places than the shortest digits have. If a power of two, rounded to these
/// places, would be nearer to the value below it, zeros follow the shortest digits.
std::string lengthened(double value, const Decimal& decimal, int places, DType dtype,
                       Notation notation) {
  std::string text = rounded_text(value, places, notation);
  if (reads_back(text, value, dtype)) return text;
  text = to_text(decimal, notation);
  const std::size_t end = std::min(text.find('e'), text.size());
  return text.insert(end, static_cast<std::size_t>(places - places_of(decimal, notation)), '0');
}

}  // namespace

void append_number(std::string& out, double value) { append_float(out, value); }
void append_number(std::string& out, float value) { append_float(out, value); }
void append_number(std::string& out, Half value) { append_float(out, fewest_digits(value)); }

std::string python_repr(double value, DType dtype, double limit) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // NumPy compares the value with 1e-4, not its digits: the f32 nearest to 1e-4 is less.
  const double magnitude = std::fabs(value);
  if (magnitude != 0 && (magnitude < 1e-4 || magnitude >= limit)) {
    return std::string(scientific(value, dtype).text());
  }
  std::string text;
  if (dtype == DType::f16)
    append_number(text, Half(value));
  else if (dtype == DType::f32)
    append_number(text, static_cast<float>(value));
  else
    append_number(text, value);
  return text;
}

std::string six_digits(double value) {
  if (std::isnan(value)) return "nan";  // x86 gives inf - inf a sign
  std::array<char, 32> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6);
  return {text.data(), end.ptr};
}

std::string rounded_text(double value, int places, Notation notation) {
  const bool scientific = notation == Notation::scientific;
  constexpr std::size_t kMaxLength = 320;  // a sign, 309 digits before the point, an exponent
  std::string text(kMaxLength + static_cast<std::size_t>(places), '\0');
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value,
                    scientific ? std::chars_format::scientific : std::chars_format::fixed, places);
  text.resize(static_cast<std::size_t>(end.ptr - text.data()));
  if (places == 0) text.insert(std::min(text.find('e'), text.size()), 1, '.');
  return text;
}

std::string number_text(double value, DType dtype, Notation notation, const DigitRule& rule) {
  std::string text;
  if (!rule.unique) {
    text = rounded_text(value, rule.max_digits, notation);
  } else {
    const Decimal decimal = shortest(value, dtype);
    const int places = places_of(decimal, notation);
    if (rule.max_digits >= 0 && places > rule.max_digits)
      text = rounded_text(value, rule.max_digits, notation);
    else if (places < rule.min_digits)
      text = lengthened(value, decimal, rule.min_digits, dtype, notation);
    else
      text = to_text(decimal, notation);
  }
  return rule.trim_zeros ? without_zeros(text) : text;
}

void NumberCensus::count(const Number& number) {
  any_ = true;
  if (const auto* integer = std::get_if<std::int64_t>(&number))
    negative_ |= *integer < 0;
  else if (std::holds_alternative<std::uint64_t>(number))
    large_ = true;
  else
    float_ = true;
}

DType NumberCensus::dtype(const std::string& name) const {
  if (!any_ || float_) return DType::f64;
  if (!large_) return DType::i64;
  if (negative_)
    fail_data({.where = name.empty() ? std::vector<std::string>{} : std::vector{name},
               .message = "has integers below 0 and above 2^63 - 1, which no 64-bit "
                          "type can represent (write one with a '.' for floats)"});
  return DType::u64;
}

std::optional<double> parse_decimal(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

bool parse_non_finite(std::string_view word, double& number) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "NaN")
    number = std::numeric_limits<double>::quiet_NaN();
  else if (word == "Infinity")
    number = kInfinity;
  else if (word == "-Infinity")
    number = -kInfinity;
  else
    return false;
  return true;
}

std::string_view non_finite_name(double number) {
  if (std::isnan(number)) return "NaN";
  return number > 0 ? "Infinity" : "-Infinity";
}

}  // namespace attn
