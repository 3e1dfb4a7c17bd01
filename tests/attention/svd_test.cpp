#include "attn/attention/svd.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/base/error.h"

using namespace attn;

namespace {

/// Pseudo-random numbers in [-1, 1): a linear congruential generator with Knuth's MMIX constants.
Tensor scattered(std::size_t m, std::size_t n, std::uint64_t seed) {
  std::vector<double> values(m * n);
  for (double& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = std::ldexp(static_cast<double>(seed >> 11), -52) - 1;
  }
  return Tensor::of<double>({m, n}, values);
}

double at(const Tensor& matrix, std::size_t i, std::size_t j) {
  return cast(matrix, DType::f64).data<double>()[i * matrix.shape()[1] + j];
}

/// The largest |A - U diag(s) Vt|.
double residual(const Tensor& a, const Svd& svd) {
  const auto s = cast(svd.s, DType::f64);
  double worst = 0;
  for (std::size_t i = 0; i < a.shape()[0]; ++i)
    for (std::size_t j = 0; j < a.shape()[1]; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < s.size(); ++k)
        sum += at(svd.U, i, k) * s.data<double>()[k] * at(svd.Vt, k, j);
      worst = std::max(worst, std::abs(sum - at(a, i, j)));
    }
  return worst;
}

/// The largest |U^T U - 1| and |Vt Vt^T - 1|.
double skew(const Svd& svd) {
  double worst = 0;
  const std::size_t k = svd.s.size();
  for (std::size_t p = 0; p < k; ++p)
    for (std::size_t q = 0; q < k; ++q) {
      double u = 0, v = 0;
      for (std::size_t i = 0; i < svd.U.shape()[0]; ++i) u += at(svd.U, i, p) * at(svd.U, i, q);
      for (std::size_t j = 0; j < svd.Vt.shape()[1]; ++j) v += at(svd.Vt, p, j) * at(svd.Vt, q, j);
      const double one = p == q ? 1 : 0;
      worst = std::max({worst, std::abs(u - one), std::abs(v - one)});
    }
  return worst;
}

}  // namespace

TEST_CASE("factors are orthonormal, sorted, and multiply to the matrix") {
  const auto [m, n] = GENERATE(table<std::size_t, std::size_t>(
      {{1, 1}, {1, 7}, {7, 1}, {4, 4}, {9, 5}, {5, 9}, {60, 40}, {40, 60}, {200, 3}}));
  const Tensor a = scattered(m, n, m * 1000 + n);
  const Svd result = svd(a);
  const std::size_t k = std::min(m, n);
  CAPTURE(m, n);
  CHECK(result.U.shape() == Shape{m, k});
  CHECK(result.s.shape() == Shape{k});
  CHECK(result.Vt.shape() == Shape{k, n});
  const auto s = result.s.data<double>();
  CHECK(std::is_sorted(s.rbegin(), s.rend()));
  CHECK(s.back() >= 0);
  // gesdd is backward stable: errors of a few epsilon times the largest singular value.
  const double bound = 20 * double(m + n) * std::numeric_limits<double>::epsilon();
  CHECK(residual(a, result) <= bound * s[0]);
  CHECK(skew(result) <= bound);
}

TEST_CASE("float32 is decomposed in float32, all other dtypes in float64") {
  const Tensor a = scattered(6, 4, 5);
  const Svd single = svd(cast(a, DType::f32));
  CHECK(single.U.dtype() == DType::f32);
  CHECK(single.s.dtype() == DType::f32);
  CHECK(single.Vt.dtype() == DType::f32);
  CHECK(residual(cast(a, DType::f32), single) < 1e-5);
  CHECK(residual(cast(a, DType::f32), single) > 1e-12);  // rounded to float32
  CHECK(svd(Tensor::of<std::int64_t>({1, 2}, {3, 4})).s.data<double>()[0] == Approx(5));
  CHECK(svd(cast(a, DType::f16)).s.dtype() == DType::f64);
}

TEST_CASE("known singular values") {
  // A^T A = [[25, 20], [20, 25]]: eigenvalues 45 and 5.
  const Svd square = svd(Tensor::of<double>({2, 2}, {3, 0, 4, 5}));
  CHECK(square.s.data<double>()[0] == Approx(std::sqrt(45.0)).epsilon(1e-14));
  CHECK(square.s.data<double>()[1] == Approx(std::sqrt(5.0)).epsilon(1e-14));
  // diag(2, -3): the values are sorted and positive, the sign goes into a vector.
  const Svd diagonal = svd(Tensor::of<double>({2, 2}, {2, 0, 0, -3}));
  CHECK(diagonal.s.data<double>()[0] == Approx(3));
  CHECK(diagonal.s.data<double>()[1] == Approx(2));
  CHECK(at(diagonal.U, 1, 0) * at(diagonal.Vt, 0, 1) == Approx(-1));
  // An outer product has one.
  const Svd outer = svd(Tensor::of<double>({2, 3}, {1, 2, 2, 2, 4, 4}));
  CHECK(outer.s.data<double>()[0] == Approx(std::sqrt(5.0) * 3));
  CHECK(outer.s.data<double>()[1] == Approx(0).margin(1e-14));
}

TEST_CASE("a rank keeps the first singular values and their vectors") {
  const Tensor a = scattered(8, 6, 77);
  const Svd all = svd(a), two = svd(a, 2);
  REQUIRE(two.U.shape() == Shape{8, 2});
  REQUIRE(two.s.shape() == Shape{2});
  REQUIRE(two.Vt.shape() == Shape{2, 6});
  for (std::size_t k = 0; k < 2; ++k) {
    CHECK(two.s.data<double>()[k] == all.s.data<double>()[k]);
    for (std::size_t i = 0; i < 8; ++i) CHECK(at(two.U, i, k) == at(all.U, i, k));
    for (std::size_t j = 0; j < 6; ++j) CHECK(at(two.Vt, k, j) == at(all.Vt, k, j));
  }
  CHECK(svd(a, 0).s.size() == 0);
  CHECK(svd(a, 6).s.size() == 6);
  CHECK_THROWS_WITH(svd(a, 7), "rank 7 exceeds 6, the maximum for a matrix of shape (8, 6)");
}

TEST_CASE("a matrix without elements has no singular values") {
  const Svd result = svd(Tensor(DType::f64, {3, 0}));
  CHECK(result.U.shape() == Shape{3, 0});
  CHECK(result.s.shape() == Shape{0});
  CHECK(result.Vt.shape() == Shape{0, 0});
  CHECK(svd(Tensor(DType::f32, {0, 4})).Vt.shape() == Shape{0, 4});
  CHECK(svd(Tensor(DType::f32, {0, 4})).Vt.dtype() == DType::f32);
}

TEST_CASE("a tensor without a decomposition is refused") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH(svd(Tensor::of<double>({2, 2}, {1, 2, nan, 4})),
                    "expected finite numbers, found NaN at [1, 0]");
  CHECK_THROWS_WITH(svd(Tensor::of<float>({1, 2}, {1, infinity})),
                    "expected finite numbers, found infinity at [0, 1]");
  CHECK_THROWS_WITH(svd(Tensor::of<double>({3}, {1, 2, 3})), "expected a matrix, found shape (3,)");
  CHECK_THROWS_WITH(svd(Tensor(DType::f64, {std::size_t{1} << 40, 0})),
                    Catch::Contains("at most 2^30 by 2^14"));
}

TEST_CASE("the retained share is that of the squared singular values") {
  const Tensor a = Tensor::of<double>({2, 2}, {3, 0, 0, 4});
  CHECK(explained_share(a, svd(a)) == Approx(1));
  CHECK(explained_share(a, svd(a, 1)) == Approx(16.0 / 25));
  CHECK(explained_share(a, svd(a, 0)) == 0);
  CHECK(explained_share(Tensor(DType::i64, {2, 2}), svd(Tensor(DType::i64, {2, 2}), 1)) == 1);
  const Tensor huge = Tensor::of<double>({2, 2}, {3e300, 0, 0, 4e300});
  CHECK(explained_share(huge, svd(huge, 1)) == Approx(16.0 / 25));
}
