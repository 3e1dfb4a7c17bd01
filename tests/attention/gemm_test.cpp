#include "attn/attention/gemm.h"

#include <catch2/catch.hpp>

#include "support/close.h"

using namespace attn;

TEST_CASE("matrix products of all widths and with empty axes") {
  for (const std::size_t m : {0, 1, 2, 7})
    for (const std::size_t n : {0, 1, 3, 8})
      for (const std::size_t k : {0, 1, 2, 9})
        for (const DType dtype : {DType::f64, DType::f32, DType::i64}) {
          INFO(m << " x " << k << " x " << n << " " << name_of(dtype));
          std::vector<double> a(m * k), b(k * n), bt(n * k), expected(m * n);
          for (std::size_t i = 0; i < m; ++i)
            for (std::size_t l = 0; l < k; ++l) a[i * k + l] = static_cast<double>(3 * i + l) - 4;
          for (std::size_t l = 0; l < k; ++l)
            for (std::size_t j = 0; j < n; ++j)
              bt[j * k + l] = b[l * n + j] = static_cast<double>(2 * l * j) - 5;
          for (std::size_t i = 0; i < m; ++i)
            for (std::size_t j = 0; j < n; ++j)
              for (std::size_t l = 0; l < k; ++l)
                expected[i * n + j] += a[i * k + l] * b[l * n + j];
          const Tensor A = cast(Tensor::of<double>({m, k}, a), dtype);
          const Tensor plain =
              matmul(A, cast(Tensor::of<double>({k, n}, b), dtype), Second::plain, "test");
          const Tensor transposed =
              matmul(A, cast(Tensor::of<double>({n, k}, bt), dtype), Second::transposed, "test");
          CHECK(plain.dtype() == dtype);
          CHECK(difference(plain, {{m, n}, expected, 0}) == "");
          CHECK(difference(transposed, {{m, n}, expected, 0}) == "");
        }
}

TEST_CASE("a matrix of the second operand is shared by several of the first") {
  const Tensor a = Tensor::of<double>({2, 2, 1, 2}, {1, 0, 0, 1, 1, 1, 2, 0});
  const Tensor b = Tensor::of<double>({2, 1, 2, 1}, {10, 20, 30, 40});
  CHECK(difference(matmul(a, b, Second::plain, "test"), {{2, 2, 1, 1}, {10, 20, 70, 60}, 0}) == "");
  const Tensor one = Tensor::of<double>({2, 1}, {10, 20});
  CHECK(difference(matmul(a, one, Second::plain, "test"), {{2, 2, 1, 1}, {10, 20, 30, 20}, 0}) ==
        "");
}

TEST_CASE("both operands may be the same matrix") {
  const Tensor a = Tensor::of<double>({2, 2}, {1, 2, 3, 4});
  CHECK(difference(matmul(a, a, Second::plain, "test"), {{2, 2}, {7, 10, 15, 22}, 0}) == "");
  CHECK(difference(matmul(a, a, Second::transposed, "test"), {{2, 2}, {5, 11, 11, 25}, 0}) == "");
}
