#include "attn/metrics/comparison.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace attn;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor bfloat16(const std::vector<double>& values) {
  return cast(Tensor::of<double>({values.size()}, values), DType::bf16);
}

}  // namespace

TEST_CASE("compare: ulps are counted in the dtype with the fewer significant bits") {
  // From 1 the next bfloat16 is 1 + 2^-7, the next float16 1 + 2^-10, the next float32 1 + 2^-23.
  const Tensor b = Tensor::of<double>({1}, {1 + 0x1p-7});
  const Tensor one = Tensor::of<double>({1}, {1});
  CHECK(compare(bfloat16({1}), b, {}).max_ulps->value == 1);
  CHECK(compare(cast(one, DType::f16), b, {}).max_ulps->value == 8);
  CHECK(compare(cast(one, DType::f32), b, {}).max_ulps->value == 65536);
  CHECK(compare(one, b, {}).max_ulps->value == 0x1p45);
  CHECK(compare(bfloat16({1}), cast(b, DType::f16), {}).max_ulps->value == 1);
  // Rounded to nearest before counting.
  CHECK(compare(bfloat16({1}), Tensor::of<double>({1}, {1 + 0x1p-9}), {}).max_ulps->value == 0);
}

TEST_CASE("compare: ulps are counted across zero and to the ends of the range") {
  const auto ulps = [](double a, double b) {
    return compare(Tensor::of<double>({1}, {a}), Tensor::of<double>({1}, {b}), {}).max_ulps->value;
  };
  const double least = std::numeric_limits<double>::denorm_min();
  CHECK(ulps(-0.0, 0.0) == 0);
  CHECK(ulps(-least, least) == 2);
  const double most = std::numeric_limits<double>::max();
  CHECK(ulps(-most, most) == 0x1p64 - 0x1p53);  // 2 (2^63 - 2^52), as a double
  CHECK(ulps(most, kInfinity) == kInfinity);
  CHECK(ulps(kInfinity, kInfinity) == 0);
}

TEST_CASE("compare: the largest numbers do not overflow the sums") {
  const Tensor a = Tensor::of<double>({2}, {1e308, 1e308}),
               b = Tensor::of<double>({2}, {5e307, 5e307});
  const Comparison found = compare(a, b, {});
  CHECK(*found.rms == Approx(5e307));
  CHECK(*found.cosine == Approx(1));
  CHECK(found.decades == std::map<int, std::size_t>{{307, 2}});
}

TEST_CASE("compare: NaN is excluded from the statistics") {
  const Tensor a = Tensor::of<double>({4}, {kNaN, kNaN, 1, 2}),
               b = Tensor::of<double>({4}, {kNaN, 3, kNaN, 2});
  Tolerance tolerance;
  Comparison found = compare(a, b, tolerance);
  CHECK(found.differing == 3);
  CHECK(found.first_nan->at == 0);
  tolerance.equal_nan = true;
  found = compare(a, b, tolerance);
  CHECK(found.differing == 2);
  CHECK(found.first_nan->at == 1);
  CHECK(found.max_abs->value == 0);
  CHECK(found.max_abs->at == 3);
  CHECK(found.rms == 0);
  CHECK_FALSE(compare(bfloat16({kNaN}), bfloat16({kNaN}), tolerance).max_abs);
}

TEST_CASE("compare: small errors share a histogram bar") {
  std::vector<double> values(30, 1), zeros(30, 0);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::pow(10, -static_cast<int>(i)) * 2;
  const Tensor a = Tensor::of<double>({30}, values), b = Tensor::of<double>({30}, zeros);
  const std::string text = comparison_text({"x", a, b, {}, ""}, compare(a, b, {}));
  CHECK(text.find("    below 1e-11    ######################################## 18\n") !=
        std::string::npos);
  CHECK(text.find("    1e+00 to 1e+01 ### 1\n") != std::string::npos);
}
