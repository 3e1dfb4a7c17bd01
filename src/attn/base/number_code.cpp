#include "attn/base/number_code.h"

#include <cmath>
#include <limits>
#include <utility>

namespace attn {
namespace {

using Numbers = std::array<float, 256>;

/// The number of a code with its sign in bit 7: without NaN and infinity.
float number_of(unsigned code, int fraction_bits, int bias) {
  const auto fraction = static_cast<int>(code & ((1U << fraction_bits) - 1));
  const auto exponent = static_cast<int>((code & 0x7f) >> fraction_bits);
  const int least = 1 - bias - fraction_bits;  // exponent of the unit of the smallest numbers
  const float magnitude =
      exponent == 0
          ? std::ldexp(static_cast<float>(fraction), least)
          : std::ldexp(static_cast<float>((1 << fraction_bits) + fraction), least + exponent - 1);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

Numbers make_numbers(Code code) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Numbers numbers;
  for (unsigned i = 0; i < numbers.size(); ++i) {
    float& number = numbers[i];
    switch (code) {
      case Code::e4m3:
        number = (i & 0x7f) == 0x7f ? kNaN : number_of(i, 3, 7);
        break;
      case Code::e5m2:
        number = (i & 0x7f) > 0x7c    ? kNaN
                 : (i & 0x7f) == 0x7c ? (i == 0x7c ? kInfinity : -kInfinity)
                                      : number_of(i, 2, 15);
        break;
      case Code::e4m3fnuz:
        number = i == 0x80 ? kNaN : number_of(i, 3, 8);
        break;
      case Code::e5m2fnuz:
        number = i == 0x80 ? kNaN : number_of(i, 2, 16);
        break;
      case Code::e8m0:
        number = i == 0xff ? kNaN : std::ldexp(1.0F, static_cast<int>(i) - 127);
        break;
      case Code::e2m1:
        number = number_of((i & 8) << 4 | (i & 7), 1, 1);
        break;
      case Code::none:
        number = static_cast<float>(i);
        break;
    }
  }
  return numbers;
}

}  // namespace

std::optional<Code> code_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Code>, 5> kCodes = {{
      {"float8_e4m3fn", Code::e4m3},
      {"float8_e5m2", Code::e5m2},
      {"float8_e4m3fnuz", Code::e4m3fnuz},
      {"float8_e5m2fnuz", Code::e5m2fnuz},
      {"float8_e8m0fnu", Code::e8m0},
  }};
  for (const auto& [known, code] : kCodes)
    if (known == name) return code;
  return std::nullopt;
}

const Numbers& numbers_of(Code code) {
  static const std::array<Numbers, 7> all = [] {
    std::array<Numbers, 7> tables;
    for (std::size_t i = 0; i < tables.size(); ++i) tables[i] = make_numbers(static_cast<Code>(i));
    return tables;
  }();
  return all[static_cast<std::size_t>(code)];
}

}  // namespace attn
