#include "attn/metrics/statistics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace attn;

namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("statistics exclude NaN and count it") {
  const Statistics s = statistics_of(Tensor::of<double>({4}, {kNotANumber, 3, -1, kNotANumber}));
  CHECK(s.nan == 2);
  CHECK(s.infinite == 0);
  REQUIRE(s.range.has_value());
  CHECK(s.range->minimum.data<double>()[0] == -1);
  CHECK(s.range->maximum.data<double>()[0] == 3);
  CHECK(s.range->mean == 1);
  CHECK(s.range->minimum.shape() == Shape{});
}

TEST_CASE("infinities are included and counted") {
  const Statistics s = statistics_of(Tensor::of<float>({3}, {1, -HUGE_VALF, 2}));
  CHECK(s.infinite == 1);
  CHECK(s.range->minimum.data<float>()[0] == -HUGE_VALF);
  CHECK(s.range->mean == -kInfinite);
  CHECK(std::isnan(statistics_of(Tensor::of<double>({2}, {kInfinite, -kInfinite})).range->mean));
}

TEST_CASE("there is no range without numbers") {
  CHECK_FALSE(statistics_of(Tensor(DType::f32, {0, 3})).range.has_value());
  const Statistics s = statistics_of(Tensor::of<double>({2}, {kNotANumber, kNotANumber}));
  CHECK(s.nan == 2);
  CHECK_FALSE(s.range.has_value());
}

TEST_CASE("extremes of integers are exact, and means do not overflow or drift") {
  const auto most = std::numeric_limits<std::uint64_t>::max();
  const Statistics wide = statistics_of(Tensor::of<std::uint64_t>({3}, {most, most - 1, most}));
  CHECK(wide.range->minimum.data<std::uint64_t>()[0] == most - 1);
  CHECK(wide.range->maximum.data<std::uint64_t>()[0] == most);
  CHECK(wide.range->mean == 0x1p64);
  CHECK(statistics_of(Tensor::of<double>({2}, {1e308, 1.5e308})).range->mean == 1.25e308);
  // A simple sum in double drifts to 0.10000000000133288.
  const std::vector<double> tenths(1000000, 0.1);
  CHECK(statistics_of(Tensor::of<double>({tenths.size()}, tenths)).range->mean == 0.1);
}

TEST_CASE("float16, bfloat16 and booleans have statistics") {
  const Statistics half = statistics_of(Tensor::of<Half>({2}, {Half(0.5), Half(-2)}));
  CHECK(double(half.range->minimum.data<Half>()[0]) == -2);
  CHECK(half.range->mean == -0.75);
  CHECK(statistics_of(Tensor::of<BFloat16>({1}, {BFloat16(kNotANumber)})).nan == 1);
  const Statistics boolean = statistics_of(Tensor::of<bool>({4}, {true, false, false, false}));
  CHECK_FALSE(boolean.range->minimum.data<bool>()[0]);
  CHECK(boolean.range->maximum.data<bool>()[0]);
  CHECK(boolean.range->mean == 0.25);
}
