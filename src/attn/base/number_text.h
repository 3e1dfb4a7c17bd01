// Numbers as text, and numbers read from text: the dtype rules of JSON, CSV and flags.
//
// Shortest digits: the fewest decimal digits that read back as the same value of the same type
// (Steele and White, "How to print floating-point numbers accurately", PLDI 1990). The f32 nearest
// to 0.1 is "0.1", and so is the f16 nearest to it.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "attn/base/dtype.h"

namespace attn {

/// Appends a finite value as Python's repr writes it, with the shortest digits of its type: 0.1,
/// 65500.0, 1e-05. JSON and CSV have the digits of a double for every dtype, because readers take
/// numbers as doubles. Positional from 1e-4 up to 1e16, with an exponent beyond.
void append_number(std::string& out, double value);
void append_number(std::string& out, float value);
void append_number(std::string& out, Half value);

void append_number(std::string& out, std::integral auto value) {
  std::array<char, 20> text;  // of the longest, -9223372036854775808
  out.append(text.data(), std::to_chars(text.begin(), text.end(), value).ptr);
}

/// The same for any value of `dtype` (f64, f32 or f16): also "nan", "inf" and "-inf". Magnitudes of
/// `limit` and more have an exponent; it is at most 1e16.
std::string python_repr(double value, DType dtype = DType::f64, double limit = 1e16);

/// At most six significant digits, as printf's %.6g.
std::string six_digits(double value);

enum class Notation { positional, scientific };

/// Which digits NumPy's array printing shows.
struct DigitRule {
  bool unique = true;       ///< the shortest digits; false: exactly `max_digits`
  int max_digits = -1;      ///< after the point; -1: as many as needed
  int min_digits = -1;      ///< after the point; 0 also keeps all digits before it
  bool trim_zeros = false;  ///< drop zeros at the end of the fraction
};

// Values are finite and passed as double, which represents every f32 and f16 exactly. The texts
// always have a '.', as in "12.", "0.001", "-1.5e-05", and at least two digits in the exponent.

/// The exact value, rounded half to even at `places` digits after the point.
std::string rounded_text(double value, int places, Notation notation);

/// The digits that `rule` selects: the shortest ones unless these are too many or too few,
/// otherwise the exact value, rounded.
std::string number_text(double value, DType dtype, Notation notation, const DigitRule& rule);

/// std::uint64_t is used only for integers that do not fit std::int64_t.
using Number = std::variant<std::int64_t, std::uint64_t, double>;

/// Finds the dtype for all numbers of a tensor: int64 if all are integers, uint64 if some of these
/// need it, float64 otherwise and, as in NumPy, if there are none.
class NumberCensus {
 public:
  void count(const Number& number);
  /// Errors: data, if there are integers below 0 and integers above 2^63 - 1.
  DType dtype(const std::string& name) const;

 private:
  bool any_ = false, float_ = false, negative_ = false, large_ = false;
};

template <class T>
T number_to(const Number& number) {
  return std::visit([](auto value) { return static_cast<T>(value); }, number);
}

/// A finite decimal number from the command line; also ".5" and "1.", as in C and Python.
std::optional<double> parse_decimal(std::string_view text);

/// "NaN", "Infinity" and "-Infinity", which JSON documents contain as strings.
bool parse_non_finite(std::string_view word, double& number);
std::string_view non_finite_name(double number);

}  // namespace attn
