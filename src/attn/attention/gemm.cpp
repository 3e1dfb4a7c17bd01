#include "attn/attention/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <xtensor-blas/xblas.hpp>

#include "attn/base/error.h"
#include "attn/problem/threads.h"

namespace attn {
namespace {

__extension__ typedef __int128 Wide;

/// The extents of one product: (m, k) times (k, n).
struct Extents {
  std::size_t m, n, k;
};

/// c (m, n) = a b for one pair of matrices, or for some rows and columns of c. Rows of c, and those
/// of b, are `row` elements apart.
template <class T>
struct Product {
  const T *a, *b;
  T* c;
  Extents size;
  std::size_t row_of_b, row_of_c;
  Second second;
};

/// Whether a product is too small to be worth opening BLAS, which allocates a work buffer of 128
/// MiB.
bool is_tiny(const Extents& size) {
  constexpr std::size_t kMax = 4096;
  return size.m <= kMax && size.n <= kMax && size.k <= kMax && size.m * size.n * size.k <= kMax;
}

/// Each element is summed in order.
template <class T>
void multiply_tiny(const Product<T>& p) {
  const auto& [m, n, k] = p.size;
  const bool transposed = p.second == Second::transposed;
  const std::size_t across = transposed ? p.row_of_b : 1, down = transposed ? 1 : p.row_of_b;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      T sum = 0;
      for (std::size_t l = 0; l < k; ++l) sum += p.a[i * k + l] * p.b[j * across + l * down];
      p.c[i * p.row_of_c + j] = sum;
    }
}

/// The function below xt::blas::gemm, which takes no part of the columns of a matrix.
template <class T>
void multiply(const Product<T>& p, std::string_view) {
  if (is_tiny(p.size)) return multiply_tiny(p);
  const auto index = [](std::size_t n) { return static_cast<xt::blas_index_t>(n); };
  cxxblas::gemm<xt::blas_index_t>(
      cxxblas::StorageOrder::RowMajor, cxxblas::Transpose::NoTrans,
      p.second == Second::transposed ? cxxblas::Transpose::Trans : cxxblas::Transpose::NoTrans,
      index(p.size.m), index(p.size.n), index(p.size.k), T(1), p.a, index(p.size.k), p.b,
      index(p.row_of_b), T(0), p.c, index(p.row_of_c));
}

/// The scalar product of a row and a column, whose elements are `step` apart. Returns false if a
/// product or a sum does not fit.
template <class T>
bool add_products(const std::int64_t* row, const std::int64_t* column, std::size_t step,
                  std::size_t count, T& sum) {
  for (std::size_t l = 0; l < count; ++l, column += step) {
    T product = 0;
    if (__builtin_mul_overflow(row[l], *column, &product) ||
        __builtin_add_overflow(sum, product, &sum))
      return false;
  }
  return true;
}

/// Integers that do not fit are summed in 128 bits, so that only a result that does not fit is an
/// error.
void multiply(const Product<std::int64_t>& p, std::string_view stage) {
  const Extents& size = p.size;
  const bool transposed = p.second == Second::transposed;
  const std::size_t step = transposed ? 1 : p.row_of_b;
  for (std::size_t i = 0; i < size.m; ++i)
    for (std::size_t j = 0; j < size.n; ++j) {
      const std::int64_t* row = p.a + i * size.k;
      const std::int64_t* column = transposed ? p.b + j * p.row_of_b : p.b + j;
      std::int64_t& element = p.c[i * p.row_of_c + j];
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

/// How many threads compute such products: few if these are short, and so many that OpenBLAS packs
/// at most 16 MiB of the operands.
template <class T>
std::size_t threads_for(const Extents& size, std::size_t products) {
  constexpr double kLeast = 1e7;
  constexpr std::size_t kPackedDepth = 512, kPackedBytes = std::size_t{16} << 20;
  const double all = static_cast<double>(size.m) * static_cast<double>(size.n) *
                     static_cast<double>(size.k) * static_cast<double>(products);
  if (all < kLeast) return 1;
  const std::size_t packed = sizeof(T) * std::min(size.k, kPackedDepth) *
                             (std::min(size.n, kProductColumns) + kProductRows);
  return std::max<std::size_t>(1, kPackedBytes / packed);
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
  const std::size_t count = matrices(a), sharing = count / matrices(b);
  const std::size_t down = (size.m + kProductRows - 1) / kProductRows,
                    across = (size.n + kProductColumns - 1) / kProductColumns;
  const bool transposed = second == Second::transposed;
  const std::size_t row_of_b = transposed ? size.k : size.n;
  T* const c = product.mutable_data<T>().data();
  run_in_parallel(count * down * across, threads_for<T>(size, count), [&](std::size_t part) {
    const std::size_t i = part / (down * across), row = part / across % down * kProductRows,
                      column = part % across * kProductColumns;
    multiply(Product<T>{a.data<T>().data() + (i * size.m + row) * size.k,
                        b.data<T>().data() + i / sharing * size.k * size.n +
                            column * (transposed ? row_of_b : 1),
                        c + (i * size.m + row) * size.n + column,
                        {std::min(kProductRows, size.m - row),
                         std::min(kProductColumns, size.n - column), size.k},
                        row_of_b,
                        size.n,
                        second},
             stage);
  });
  return product;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Second second, std::string_view stage) {
  const DType dtype = a.dtype() == DType::i64 ? b.dtype() : a.dtype();
  if (dtype == DType::i64 && is_large(a, b) && exact_in_double(a, b, a.shape().back()))
    return cast(multiply_all<double>(cast(a, DType::f64), cast(b, DType::f64), second, stage),
                DType::i64);
  if (a.dtype() != dtype) return matmul(cast(a, dtype), b, second, stage);
  if (b.dtype() != dtype) return matmul(a, cast(b, dtype), second, stage);
  if (dtype == DType::i64) return multiply_all<std::int64_t>(a, b, second, stage);
  return dtype == DType::f64 ? multiply_all<double>(a, b, second, stage)
                             : multiply_all<float>(a, b, second, stage);
}

}  // namespace attn
