#include "attn/random/random_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "attn/base/error.h"
#include "attn/random/bounded.h"
#include "attn/random/decimal.h"
#include "attn/random/uniform.h"

namespace attn {
namespace {

/// Swaps each of `n` elements, from the last to the second, with one at or before it.
template <class Swap>
void fisher_yates(Mt19937& bits, std::size_t n, Swap swap) {
  for (std::size_t i = n; i-- > 1;) {
    const std::uint64_t j = bounded_draw<Rejection::masked>(bits, i);
    if (i != j) swap(i, j);
  }
}

void require_rows(const Tensor& tensor) {
  if (tensor.rank() == 0)
    throw Error(ErrorKind::data,
                Problem{.expected = "an array of at least one axis", .found = "a number"});
}

}  // namespace

RandomState::RandomState(std::uint32_t seed) : bits_(seed) {}
RandomState::RandomState(const std::vector<std::uint32_t>& key) : bits_(key) {}

Tensor RandomState::randint(int128 low, int128 high, DType dtype, const Shape& shape) {
  return bounded_integers<Rejection::masked>(bits_, low, high, dtype, shape);
}

Tensor RandomState::random_sample(const Shape& shape) {
  return uniform_doubles(bits_, 0, 1, shape);
}

Tensor RandomState::uniform(double low, double high, const Shape& shape) {
  return uniform_doubles(bits_, low, high, shape);
}

double RandomState::next_gauss() {
  if (gauss_) return *std::exchange(gauss_, std::nullopt);
  double x1 = 0, x2 = 0, r = 0;
  do {
    x1 = 2 * bits_.next_double() - 1;
    x2 = 2 * bits_.next_double() - 1;
    r = x1 * x1 + x2 * x2;
  } while (r >= 1 || r == 0);
  const double f = std::sqrt(-2 * std::log(r) / r);
  gauss_ = f * x1;
  return f * x2;
}

Tensor RandomState::standard_normal(const Shape& shape) {
  Tensor result(DType::f64, shape);
  for (double& value : result.mutable_data<double>()) value = next_gauss();
  return result;
}

Tensor RandomState::normal(double loc, double scale, const Shape& shape) {
  if (std::signbit(scale) && !std::isnan(scale))
    throw Error(ErrorKind::data,
                "scale: expected a number that is not negative, found " + decimal(scale));
  Tensor result(DType::f64, shape);
  for (double& value : result.mutable_data<double>()) value = loc + scale * next_gauss();
  return result;
}

void RandomState::shuffle(Tensor& tensor) {
  require_rows(tensor);
  if (tensor.size() == 0) return;  // uses no bits, even if there are (empty) rows
  const std::size_t rows = tensor.shape()[0], width = tensor.bytes() / rows;
  std::byte* const data = tensor.mutable_raw();
  fisher_yates(bits_, rows, [&](std::size_t i, std::size_t j) {
    std::swap_ranges(data + i * width, data + (i + 1) * width, data + j * width);
  });
}

Tensor RandomState::permutation(std::int64_t n) {
  Tensor result(DType::i64, {static_cast<std::size_t>(std::max<std::int64_t>(n, 0))});
  const auto values = result.mutable_data<std::int64_t>();
  std::iota(values.begin(), values.end(), std::int64_t{0});
  fisher_yates(bits_, values.size(),
               [&](std::size_t i, std::size_t j) { std::swap(values[i], values[j]); });
  return result;
}

Tensor RandomState::permutation(const Tensor& tensor) {
  require_rows(tensor);
  // Unlike shuffle(), this uses bits for the empty rows of a matrix.
  const Tensor order = permutation(static_cast<std::int64_t>(tensor.shape()[0]));
  Tensor result(tensor.dtype(), tensor.shape());
  if (tensor.size() == 0) return result;
  const std::size_t width = tensor.bytes() / tensor.shape()[0];
  std::byte* to = result.mutable_raw();
  for (const std::int64_t row : order.data<std::int64_t>()) {
    std::memcpy(to, tensor.raw() + static_cast<std::size_t>(row) * width, width);
    to += width;
  }
  return result;
}

}  // namespace attn
