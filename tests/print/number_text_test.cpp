#include "attn/base/number_text.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

using namespace attn;

namespace {

constexpr auto kPlain = Notation::positional;
constexpr auto kE = Notation::scientific;

/// Whether a decimal with this many significant digits reads back as the float16 `value`.
bool some_decimal_names(double value, int digits) {
  const int exponent = static_cast<int>(std::floor(std::log10(value)));
  const double step = std::pow(10.0, exponent - digits + 1);
  for (double multiple = std::floor(value / step) - 1; multiple <= value / step + 2; ++multiple)
    if (double(Half(multiple * step)) == value) return true;
  return false;
}

}  // namespace

TEST_CASE("all float16 numbers are written with the fewest digits") {
  int shorter = 0, unread = 0;
  for (std::uint32_t bits = 1; bits < 0x7C00u; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const std::string text = number_text(double(half), DType::f16, kE, {});
    if (Half(std::strtod(text.c_str(), nullptr)).bits != bits) ++unread;
    const int digits = static_cast<int>(text.find('e')) - 1;
    if (digits > 1 && some_decimal_names(double(half), digits - 1)) ++shorter;
  }
  CHECK(unread == 0);
  CHECK(shorter == 0);
}

TEST_CASE("exact values are rounded half to even") {
  CHECK(rounded_text(0.125, 2, kPlain) == "0.12");
  CHECK(rounded_text(0.375, 2, kPlain) == "0.38");
  CHECK(rounded_text(2.5, 0, kPlain) == "2.");
  CHECK(rounded_text(0.15, 1, kPlain) == "0.1");  // 0.1499999999999999944
  CHECK(rounded_text(9.995e5, 2, kE) == "1.00e+06");
  CHECK(rounded_text(9.985e5, 2, kE) == "9.98e+05");
  CHECK(rounded_text(-1e-9, 3, kPlain) == "-0.000");
  CHECK(rounded_text(1.7976931348623157e308, 0, kPlain).size() == 310);
  CHECK(rounded_text(5e-324, 1074, kPlain).back() == '5');
}

TEST_CASE("shortest texts have a point in both notations") {
  CHECK(number_text(0, DType::f64, kPlain, {}) == "0.");
  CHECK(number_text(12300, DType::f64, kPlain, {.min_digits = 0}) == "12300.");
  CHECK(number_text(0.00123, DType::f64, kPlain, {}) == "0.00123");
  CHECK(number_text(-12.5, DType::f64, kPlain, {}) == "-12.5");
  CHECK(number_text(12300, DType::f64, kE, {}) == "1.23e+04");
  CHECK(number_text(1, DType::f64, kE, {}) == "1.e+00");
  CHECK(number_text(static_cast<double>(0.1f), DType::f32, kPlain, {}) == "0.1");
  CHECK(number_text(static_cast<double>(0.1f), DType::f64, kPlain, {}) == "0.10000000149011612");
}

TEST_CASE("a rule limits the digits from below and above") {
  DigitRule rule;
  rule.max_digits = 3;
  CHECK(number_text(0.12345, DType::f64, kPlain, rule) == "0.123");
  CHECK(number_text(0.5, DType::f64, kPlain, rule) == "0.5");
  CHECK(number_text(1.9996, DType::f64, kPlain, rule) == "2.000");
  rule.trim_zeros = true;
  CHECK(number_text(1.9996, DType::f64, kPlain, rule) == "2.");
  CHECK(number_text(1.9996e20, DType::f64, kE, rule) == "2.e+20");
  rule = DigitRule{.min_digits = 3};
  CHECK(number_text(0.5, DType::f64, kPlain, rule) == "0.500");
  rule.min_digits = 0;
  CHECK(number_text(65504, DType::f16, kPlain, rule) == "65504.");
  rule = DigitRule{.unique = false, .max_digits = 20};
  CHECK(number_text(0.1, DType::f64, kPlain, rule) == "0.10000000000000000555");
}
