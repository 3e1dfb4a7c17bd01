#include "attn/attention/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <xtensor-blas/xblas.hpp>
#include <xtensor/xadapt.hpp>

#include "attn/base/error.h"

namespace attn {
namespace {

__extension__ typedef __int128 Wide;

/// The extents of one product: (m, k) times (k, n).
struct Extents {
  std::size_t m, n, k;
};

template <class T>
auto matrix(T* data, std::size_t rows, std::size_t columns) {
  return xt::adapt(data, rows * columns, xt::no_ownership(),
                   std::array<std::size_t, 2>{rows, columns});
}

/// Whether a product is too small to be worth opening BLAS, which allocates a work buffer of 128
/// MiB.
bool is_tiny(const Extents& size) {
  constexpr std::size_t kMax = 4096;
  return size.m <= kMax && size.n <= kMax && size.k <= kMax && size.m * size.n * size.k <= kMax;
}

/// c (m, n) = a b, each element summed in order.
template <class T>
void multiply_tiny(const T* a, const T* b, T* c, const Extents& size, Second second) {
  const bool transposed = second == Second::transposed;
  const std::size_t across = transposed ? size.k : 1, down = transposed ? 1 : size.n;
  for (std::size_t i = 0; i < size.m; ++i)
    for (std::size_t j = 0; j < size.n; ++j) {
      T sum = 0;
      for (std::size_t l = 0; l < size.k; ++l) sum += a[i * size.k + l] * b[j * across + l * down];
      c[i * size.n + j] = sum;
    }
}

/// c (m, n) = a b for one pair of matrices. xt::blas::gemm and not xt::linalg::dot, which gives
/// wrong shapes for views that alias and for empty axes.
template <class T>
void multiply(const T* a, const T* b, T* c, const Extents& size, Second second, std::string_view) {
  if (is_tiny(size)) return multiply_tiny(a, b, c, size, second);
  const bool transposed = second == Second::transposed;
  auto product = matrix(c, size.m, size.n);
  xt::blas::gemm(matrix(a, size.m, size.k),
                 transposed ? matrix(b, size.n, size.k) : matrix(b, size.k, size.n), product, false,
                 transposed);
}

/// The scalar product of a row and a column, whose elements are `step` apart. Returns false if a
/// product or a sum does not fit.
template <class T>
bool add_products(const std::int64_t* row, const std::int64_t* column, std::size_t step,
                  std::size_t count, T& sum) {
  for (std::size_t l = 0; l < count; ++l) {
    T product = 0;
    if (__builtin_mul_overflow(row[l], column[l * step], &product) ||
        __builtin_add_overflow(sum, product, &sum))
      return false;
  }
  return true;
}

/// Integers that do not fit are summed in 128 bits, so that only a result that does not fit is an
/// error.
void multiply(const std::int64_t* a, const std::int64_t* b, std::int64_t* c, const Extents& size,
              Second second, std::string_view stage) {
  const bool transposed = second == Second::transposed;
  const std::size_t step = transposed ? 1 : size.n;
  for (std::size_t i = 0; i < size.m; ++i)
    for (std::size_t j = 0; j < size.n; ++j) {
      const std::int64_t* row = a + i * size.k;
      const std::int64_t* column = transposed ? b + j * size.k : b + j;
      std::int64_t& element = c[i * size.n + j];
      if (std::int64_t sum = 0; add_products(row, column, step, size.k, sum)) {
        element = sum;
        continue;
      }
      Wide sum = 0;
      if (!add_products(row, column, step, size.k, sum) ||
          sum < std::numeric_limits<std::int64_t>::min() ||
          sum > std::numeric_limits<std::int64_t>::max())
        throw Error(ErrorKind::data, Problem{.subject = std::string(stage),
                                             .expected = "integers within int64",
                                             .found = "an overflow",
                                             .hint = "give the tensors as floating-point numbers"});
      element = static_cast<std::int64_t>(sum);
    }
}

double largest_integer(const Tensor& integers) {
  double largest = 0;
  for (const std::int64_t value : integers.data<std::int64_t>())
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  return largest;
}

/// Whether every product and every partial sum, in any order, is an integer that a double
/// represents exactly.
bool exact_in_double(const Tensor& a, const Tensor& b, std::size_t k) {
  return largest_integer(a) * largest_integer(b) * static_cast<double>(k) <= 0x1p52;
}

/// Whether BLAS is faster even with the conversion of integers to doubles and back.
bool is_large(const Tensor& a, const Tensor& b) { return a.size() + b.size() > 256; }

std::size_t matrices(const Tensor& tensor) {
  std::size_t count = 1;
  for (std::size_t axis = 0; axis + 2 < tensor.rank(); ++axis) count *= tensor.shape()[axis];
  return count;
}

void require_blas_extents(const Extents& size, std::string_view stage) {
  constexpr std::size_t kMax = std::numeric_limits<xt::blas_index_t>::max();
  if (std::max({size.m, size.n, size.k}) > kMax)
    throw Error(
        ErrorKind::data,
        Problem{.subject = std::string(stage),
                .expected = "axis lengths of at most " + std::to_string(kMax),
                .found = to_string({size.m, size.k}) + " times " + to_string({size.k, size.n})});
}

template <class T>
Tensor multiply_all(const Tensor& a, const Tensor& b, Second second, std::string_view stage) {
  const std::size_t r = a.rank(), s = b.rank();
  const Extents size{a.shape()[r - 2], b.shape()[second == Second::plain ? s - 1 : s - 2],
                     a.shape()[r - 1]};
  Shape shape = a.shape();
  shape[r - 1] = size.n;
  Tensor product(dtype_of<T>, shape);
  if (product.size() == 0 || size.k == 0) return product;  // an empty sum is 0
  require_blas_extents(size, stage);
  const std::size_t sharing = matrices(a) / matrices(b);
  T* c = product.mutable_data<T>().data();
  for (std::size_t i = 0; i < matrices(a); ++i)
    for (std::size_t row = 0; row < size.m; row += kProductRows) {
      const Extents block{std::min(kProductRows, size.m - row), size.n, size.k};
      multiply(a.data<T>().data() + (i * size.m + row) * size.k,
               b.data<T>().data() + i / sharing * size.k * size.n, c + (i * size.m + row) * size.n,
               block, second, stage);
    }
  return product;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Second second, std::string_view stage) {
  const DType dtype = a.dtype() == DType::i64 ? b.dtype() : a.dtype();
  if (dtype == DType::i64 && is_large(a, b) && exact_in_double(a, b, a.shape().back()))
    return cast(multiply_all<double>(cast(a, DType::f64), cast(b, DType::f64), second, stage),
                DType::i64);
  if (dtype == DType::i64) return multiply_all<std::int64_t>(a, b, second, stage);
  const Tensor left = cast(a, dtype), right = cast(b, dtype);
  return dtype == DType::f64 ? multiply_all<double>(left, right, second, stage)
                             : multiply_all<float>(left, right, second, stage);
}

}  // namespace attn
