#include "attn/base/dtype.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

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

TEST_CASE("dtypes have NumPy's names and short ones") {
  CHECK(name_of(DType::f64) == "float64");
  CHECK(dtype_named("uint16") == DType::u16);
  CHECK(dtype_named("bf16") == DType::bf16);
  CHECK_FALSE(dtype_named("float128").has_value());
  CHECK(size_of(DType::boolean) == 1);
}
