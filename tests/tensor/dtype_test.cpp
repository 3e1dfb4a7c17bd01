#include "attn/base/dtype.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "attn/base/float_arrays.h"

using namespace attn;

TEST_CASE("all float16 and bfloat16 numbers survive conversion to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    BFloat16 brain;
    brain.bits = static_cast<std::uint16_t>(bits);
    const float h = float(half), b = float(brain);
    if (std::isnan(h))
      CHECK(std::isnan(float(Half(h))));
    else if (Half(h).bits != bits)
      FAIL("half " << bits << " came back as " << Half(h).bits);
    if (std::isnan(b))
      CHECK(std::isnan(float(BFloat16(b))));
    else if (BFloat16(b).bits != bits)
      FAIL("bfloat16 " << bits << " came back as " << BFloat16(b).bits);
  }
}

TEST_CASE("rounding to float16 is to nearest, ties to even, once") {
  CHECK(float(Half(1.0 + std::ldexp(1.0, -11))) == 1.0f);  // a tie: down to even
  CHECK(float(Half(1.0 + 3 * std::ldexp(1.0, -11))) == 1.0f + std::ldexp(1.0f, -9));
  CHECK(float(Half(1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40))) ==
        1.0f + std::ldexp(1.0f, -10));  // via float this would be a tie
  CHECK(float(Half(65504)) == 65504.0f);
  CHECK(float(Half(65519.999)) == 65504.0f);
  CHECK(std::isinf(float(Half(65520))));
  CHECK(float(Half(std::ldexp(1.0, -24))) == std::ldexp(1.0f, -24));
  CHECK(float(Half(std::ldexp(1.0, -25))) == 0.0f);
  CHECK(float(Half(std::ldexp(1.5, -25))) == std::ldexp(1.0f, -24));
  CHECK(std::signbit(float(Half(-0.0))));
}

TEST_CASE("arrays are rounded to narrower floats as numbers are") {
  // Every pattern of the upper bits, with lower bits around ties, and whole vectors of NaN.
  std::vector<float> numbers;
  for (std::uint32_t upper = 0; upper < 0x80000u; ++upper)
    for (const std::uint32_t lower : {0u, 1u, 0xFFFu, 0x1000u, 0x1001u, 0x1FFFu})
      numbers.push_back(std::bit_cast<float>(upper << 13 | lower));
  numbers.resize(numbers.size() - 3);  // not a multiple of a vector
  std::vector<Half> halves(numbers.size());
  std::vector<BFloat16> brains(numbers.size());
  convert_all(numbers.data(), numbers.size(), halves.data());
  convert_all(numbers.data(), numbers.size(), brains.data());
  std::size_t differences = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    differences += halves[i].bits != Half(double(numbers[i])).bits ||
                   brains[i].bits != BFloat16(double(numbers[i])).bits;
  CHECK(differences == 0);
}

TEST_CASE("arrays of narrower floats are widened as numbers are") {
  std::vector<Half> halves(0x10000u - 3);
  std::vector<BFloat16> brains(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i)
    halves[i].bits = brains[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> from_halves(halves.size()), from_brains(halves.size());
  convert_all(halves.data(), halves.size(), from_halves.data());
  convert_all(brains.data(), brains.size(), from_brains.data());
  const auto are_same = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  std::size_t differences = 0;
  for (std::size_t i = 0; i < halves.size(); ++i)
    differences +=
        !are_same(from_halves[i], float(halves[i])) || !are_same(from_brains[i], float(brains[i]));
  CHECK(differences == 0);
}

TEMPLATE_TEST_CASE("NaN and infinity are found in arrays", "", double, float, Half, BFloat16) {
  using Limits = std::numeric_limits<double>;
  const double largest = double(TestType(std::is_same_v<TestType, Half> ? 65504 : 3e38));
  for (const std::size_t size : {1, 7, 64, 1001}) {
    std::vector<TestType> numbers(size, TestType(-largest));
    const std::span<const TestType> all(numbers);
    CHECK_FALSE(any_nan(all));
    CHECK(all_finite(all));
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1})
      for (const double sign : {1.0, -1.0}) {
        numbers[at] = TestType(sign * Limits::infinity());
        CHECK_FALSE(any_nan(all));
        CHECK_FALSE(all_finite(all));
        numbers[at] = TestType(std::copysign(Limits::quiet_NaN(), sign));
        CHECK(any_nan(all));
        CHECK_FALSE(all_finite(all));
        numbers[at] = TestType(0.0);
      }
  }
  CHECK(all_finite(std::span<const TestType>()));
}

TEST_CASE("dtypes have NumPy's names and short ones") {
  CHECK(name_of(DType::f64) == "float64");
  CHECK(dtype_named("uint16") == DType::u16);
  CHECK(dtype_named("bf16") == DType::bf16);
  CHECK_FALSE(dtype_named("float128").has_value());
  CHECK(size_of(DType::boolean) == 1);
}
