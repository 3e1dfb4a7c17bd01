#include "support/close.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using attn::Tensor;

namespace {
const double kNotANumber = std::numeric_limits<double>::quiet_NaN();

bool equal(double found, double wanted, double bound = 0.5) {
  return difference(Tensor::of<double>({1}, {found}), {{1}, {wanted}, bound}).empty();
}
}  // namespace

TEST_CASE("the comparator finds differences") {
  CHECK(equal(1, 1, 0));
  CHECK(equal(1, 1.5));
  CHECK_FALSE(equal(1, 1.5001));
  CHECK_FALSE(equal(1, std::nextafter(1.0, 2.0), 0));
  CHECK(equal(0.0, -0.0, 0));
  CHECK(difference(Tensor::of<double>({3}, {1, 2, 3}), {{3}, {1, 7, 4}, 0.5})
            .find("element 1 is 2, expected 7") == 0);
}

TEST_CASE("the comparator rejects NaN and wrong infinities") {
  CHECK_FALSE(equal(kNotANumber, 1, kInf));
  CHECK_FALSE(equal(1, kNotANumber, kInf));
  CHECK_FALSE(equal(kNotANumber, kNotANumber, kInf));
  CHECK_FALSE(equal(1, 1, kNotANumber));
  CHECK(equal(kInf, kInf));
  CHECK(equal(-kInf, -kInf));
  CHECK_FALSE(equal(kInf, -kInf));
  CHECK_FALSE(equal(kInf, 1e308));
  CHECK_FALSE(equal(-1e308, -kInf));
  CHECK_FALSE(difference(Tensor::of<double>({2}, {kNotANumber, 9}), {{2}, {1, 1}, 0.5}).empty());
}

TEST_CASE("the comparator compares shapes") {
  const Tensor row = Tensor::of<double>({1, 2}, {1, 2});
  CHECK(difference(row, {{1, 2}, {1, 2}, 0}).empty());
  CHECK(difference(row, {{2}, {1, 2}, 0}) == "shape (1, 2), expected (2,)");
  CHECK_FALSE(difference(row, {{1, 2}, {1}, 0}).empty());
  CHECK(difference(Tensor::of<double>({0, 2}, {}), {{0, 2}, {}, 0}).empty());
}

TEST_CASE("a bound relative to the norm ignores infinities") {
  CHECK(norm_bound({1, -4, kInf, kNotANumber}, 0.25) == 1);
  CHECK(norm_bound({}, 0.25) == 0);
}
