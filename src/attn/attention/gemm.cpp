#include "attn/attention/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <xtensor-blas/xblas.hpp>

#include "attn/base/error.h"
#include "attn/problem/threads.h"
#include "attn/tensor/shape.h"
#include "attn/tensor/transposed.h"

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
        fail_data({.subject = std::string(stage),
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
    fail_data({.subject = std::string(stage),
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

/// The blocks of the products of `count` matrices.
struct Blocks {
  Extents size;
  std::size_t count, down, across;

  std::size_t of_rows() const { return count * down; }
};

Blocks blocks_of(const Tensor& a, std::size_t columns) {
  const std::size_t r = a.rank();
  const Extents size{a.shape()[r - 2], columns, a.shape()[r - 1]};
  return {size, matrices(a), (size.m + kProductRows - 1) / kProductRows,
          (size.n + kProductColumns - 1) / kProductColumns};
}

/// Multiplies block `down` of all rows of a with block `across` of the columns of b, which begins
/// at `columns`.
template <class T>
void multiply_block(const T* a, const T* columns, T* c, const Blocks& blocks, std::size_t down,
                    std::size_t across, Second second, std::string_view stage) {
  const Extents& size = blocks.size;
  const std::size_t row = down % blocks.down * kProductRows, column = across * kProductColumns,
                    first = down / blocks.down * size.m + row;
  multiply(Product<T>{a + first * size.k,
                      columns,
                      c + first * size.n + column,
                      {std::min(kProductRows, size.m - row),
                       std::min(kProductColumns, size.n - column), size.k},
                      second == Second::transposed ? size.k : size.n,
                      size.n,
                      second},
           stage);
}

/// Whether each block has the bytes that it would have if its second operand were transposed first.
/// BLAS has other code for smaller products, whose sums depend on how the operand is stored.
bool is_large_in_each_block(const Blocks& blocks) {
  constexpr std::size_t kLeast = 1'000'001;
  const auto last = [](std::size_t length, std::size_t block) { return (length - 1) % block + 1; };
  const Extents& size = blocks.size;
  return saturating_product({last(size.m, kProductRows), last(size.n, kProductColumns), size.k}) >=
         kLeast;
}

/// c = a b for a matrix b whose transpose is stored. If it has another type, as many blocks of its
/// columns as the threads need are converted at a time.
template <class T>
void multiply_stored(const T* a, const TransposedMatrix& b, T* c, const Blocks& blocks,
                     std::string_view stage) {
  const Tensor& stored = b.stored();
  const std::size_t n = blocks.size.n, k = blocks.size.k,
                    most = threads_for<T>(blocks.size, blocks.count),
                    threads = std::min(most, thread_count());
  const bool is_converted = stored.dtype() != dtype_of<T>;
  const std::size_t step =
      is_converted ? std::min(blocks.across, (threads - 1) / blocks.of_rows() + 1) : blocks.across;
  Tensor converted(dtype_of<T>, {is_converted ? std::min(n, step * kProductColumns) : 0, k});
  std::byte* const bytes = converted.mutable_raw();
  for (std::size_t block = 0; block < blocks.across; block += step) {
    const std::size_t first = block * kProductColumns,
                      count = std::min(n - first, step * kProductColumns);
    const std::byte* from = bytes;
    if (is_converted) {
      constexpr std::size_t kRows = 64;
      run_in_parallel((count + kRows - 1) / kRows, most, [&](std::size_t i) {
        const std::size_t row = i * kRows;
        cast_to(stored.range(first + row, std::min(kRows, count - row)), dtype_of<T>,
                bytes + row * k * sizeof(T));
      });
    } else {
      from = stored.raw();
    }
    const std::size_t across = std::min(step, blocks.across - block);
    run_in_parallel(blocks.of_rows() * across, most, [&](std::size_t i) {
      const std::size_t next = i % across;
      multiply_block(a, reinterpret_cast<const T*>(from) + next * kProductColumns * k, c, blocks,
                     i / across, block + next, Second::transposed, stage);
    });
    b.release(first, count);
  }
}

template <class T>
Tensor multiply_all(const Tensor& a, const Tensor& b, Second second, std::string_view stage) {
  const std::size_t s = b.rank();
  const bool transposed = second == Second::transposed;
  const Blocks blocks = blocks_of(a, b.shape()[transposed ? s - 2 : s - 1]);
  const Extents& size = blocks.size;
  Shape shape = a.shape();
  shape[a.rank() - 1] = size.n;
  Tensor product(dtype_of<T>, shape);
  if (product.size() == 0 || size.k == 0) return product;  // an empty sum is 0
  require_blas_extents(size, stage);
  T* const c = product.mutable_data<T>().data();
  const TransposedMatrix* const stored = b.transpose();
  const bool is_stored = stored != nullptr && !transposed &&
                         stored->stored().shape() == Shape{size.n, size.k} && matrices(b) == 1;
  if (is_stored && is_large_in_each_block(blocks)) {
    multiply_stored(a.data<T>().data(), *stored, c, blocks, stage);
    return product;
  }
  const std::size_t sharing = blocks.count / matrices(b);
  run_in_parallel(
      blocks.of_rows() * blocks.across, threads_for<T>(size, blocks.count), [&](std::size_t i) {
        const std::size_t down = i / blocks.across, across = i % blocks.across;
        multiply_block(a.data<T>().data(),
                       b.data<T>().data() + down / blocks.down / sharing * size.k * size.n +
                           across * kProductColumns * (transposed ? size.k : 1),
                       c, blocks, down, across, second, stage);
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
