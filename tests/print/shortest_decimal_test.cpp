#include "attn/base/shortest_decimal.h"

#include <bit>
#include <catch2/catch.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

#include "attn/base/number_text.h"

using namespace attn;

namespace {

constexpr std::uint64_t kInfinity = 0x7FF0'0000'0000'0000;  // the bits of infinity

/// In scientific form, as std::to_chars writes it.
std::string scientific_text(const ShortDecimal& number) {
  std::string digits = std::to_string(number.digits);
  const int exponent = number.exponent + static_cast<int>(digits.size()) - 1;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.size() > 1) digits.insert(1, ".");
  const std::string power = std::to_string(std::abs(exponent));
  return digits + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
}

int differences = 0;

void compare(std::uint64_t bits) {
  if (bits == 0 || bits >= kInfinity) return;
  const auto value = std::bit_cast<double>(bits);
  char text[32];
  const char* const end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  const std::string found = scientific_text(shortest_decimal(value));
  if (found == std::string_view(text, end) || ++differences > 10) return;
  FAIL_CHECK(found << ", not " << std::string_view(text, end));
}

void compare_around(double value) {
  for (std::uint64_t bits = std::bit_cast<std::uint64_t>(value), i = 0; i < 21; ++i)
    compare(bits + i - 10);
}

}  // namespace

TEST_CASE(
    "the shortest digits of powers and of their neighbours are those of the standard library") {
  for (int e = -1074; e < 1024; ++e) compare_around(std::ldexp(1, e));
  for (int e = -323; e < 309; ++e)
    for (int digit = 1; digit < 10; ++digit)
      compare_around(
          std::strtod((std::to_string(digit) + "e" + std::to_string(e)).c_str(), nullptr));
  compare_around(std::numeric_limits<double>::max());
}

TEST_CASE("the shortest digits of random numbers are those of the standard library") {
  std::mt19937_64 random(1);
  for (std::uint64_t exponent = 0; exponent < 2047; ++exponent)
    for (int i = 0; i < 100; ++i) compare(exponent << 52 | random() >> 12);
  for (std::uint64_t i = 1; i < 100'000; ++i) {
    compare(i);  // the least subnormal numbers
    compare(std::bit_cast<std::uint64_t>(static_cast<double>(i)));
    compare(std::bit_cast<std::uint64_t>(static_cast<double>(i) / 1000));
    compare(std::bit_cast<std::uint64_t>(static_cast<double>(i) * 0x1p60));
    compare(std::bit_cast<std::uint64_t>(static_cast<double>(random() >> 11) * 0x1p-53));
  }
}

TEST_CASE("numbers are written as by Python") {
  const auto text = [](double value) {
    std::string number;
    append_number(number, value);
    return number;
  };
  CHECK(text(0) == "0.0");
  CHECK(text(-0.0) == "-0.0");
  CHECK(text(1) == "1.0");
  CHECK(text(-100) == "-100.0");
  CHECK(text(12.5) == "12.5");
  CHECK(text(-0.25) == "-0.25");
  CHECK(text(0.1 + 0.2) == "0.30000000000000004");
  CHECK(text(1e-4) == "0.0001");
  CHECK(text(-0.00012345678901234567) == "-0.00012345678901234567");
  CHECK(text(9.9e-5) == "9.9e-05");
  CHECK(text(123456789012345.67) == "123456789012345.67");
  CHECK(text(0x1p53) == "9007199254740992.0");
  CHECK(text(9999999999999998) == "9999999999999998.0");
  CHECK(text(1e16) == "1e+16");
  CHECK(text(5e-324) == "5e-324");
  CHECK(text(1.7976931348623157e308) == "1.7976931348623157e+308");
}
