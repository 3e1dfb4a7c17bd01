#include "attn/examples/printed_numbers.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace attn;

namespace {

std::vector<std::string> texts(std::string_view text) {
  std::vector<std::string> result;
  for (const PrintedNumber& number : printed_numbers(text)) result.push_back(number.text);
  return result;
}

}  // namespace

TEST_CASE("numbers are found in arrays, tuples and lists, but not in words") {
  using Texts = std::vector<std::string>;
  CHECK(texts("array([[ 0.12, -0.87],\n       [ 2., 0.5  ]])") ==
        Texts{"0.12", "-0.87", "2.", "0.5"});
  CHECK(texts("(4,)") == Texts{"4"});
  CHECK(texts("[2.36e-01 1e+300]") == Texts{"2.36e-01", "1e+300"});
  CHECK(texts("array([1, 2], dtype=float32)") == Texts{"1", "2"});
  CHECK(texts("[nan inf -inf]") == Texts{"nan", "inf", "-inf"});
  CHECK(texts("P1,1,information,in 3x4") == Texts{"1"});
  CHECK(texts("W_ vectors - \n").empty());
}

TEST_CASE("all numbers have the precision of the one with the most decimals") {
  const auto numbers = printed_numbers("[0.5     0.12345]");
  CHECK(numbers[0].half_unit == Approx(0.000005).epsilon(1e-12));
  CHECK(numbers[1].half_unit == Approx(0.000005).epsilon(1e-12));
  const auto powers = printed_numbers("[1.5e-03 2.0e+02]");
  CHECK(powers[0].half_unit == Approx(0.00005).epsilon(1e-12));
  CHECK(powers[1].half_unit == Approx(5).epsilon(1e-12));

  CHECK(is_printed_as(0.500004, numbers[0]));
  CHECK_FALSE(is_printed_as(0.500006, numbers[0]));
  CHECK(is_printed_as(0.123454999, numbers[1]));
  CHECK_FALSE(is_printed_as(0.12346, numbers[1]));
}

TEST_CASE("NaN and infinities equal only themselves") {
  const auto numbers = printed_numbers("[nan inf -inf 1.0]");
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  CHECK(is_printed_as(nan, numbers[0]));
  CHECK(is_printed_as(infinity, numbers[1]));
  CHECK(is_printed_as(-infinity, numbers[2]));
  CHECK_FALSE(is_printed_as(infinity, numbers[2]));
  CHECK_FALSE(is_printed_as(1, numbers[0]));
  CHECK_FALSE(is_printed_as(nan, numbers[3]));
  CHECK_FALSE(is_printed_as(infinity, numbers[3]));
}

TEST_CASE("numbers beyond the range of doubles are clamped") {
  const auto numbers = printed_numbers("[-1.797693134862316e+308 1.8e+309 4.9e-400]");
  REQUIRE(numbers.size() == 3);
  const double largest = std::numeric_limits<double>::max();
  CHECK(is_printed_as(-largest, numbers[0]));
  CHECK_FALSE(is_printed_as(largest, numbers[0]));
  CHECK_FALSE(is_printed_as(-largest / 2, numbers[0]));
  CHECK_FALSE(is_printed_as(-std::numeric_limits<double>::infinity(), numbers[0]));
  CHECK_FALSE(is_printed_as(largest, numbers[1]));
  CHECK(is_printed_as(0, numbers[2]));
}
