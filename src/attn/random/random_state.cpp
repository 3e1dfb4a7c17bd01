#include "attn/random/random_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/random/selection.h"

namespace attn {

std::uint64_t checked_range(int128 low, int128 high, DType dtype) {
  const auto range = [](int128 from, int128 to) {
    return "[" + decimal(from) + ", " + decimal(to) + ")";
  };
  const std::string_view name = name_of(dtype);
  if (is_float(dtype))
    fail_data("dtype: expected an integer type or bool, found " + std::string(name));
  int128 lowest = 0, highest = 0;
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>) {
      lowest = std::numeric_limits<T>::min();
      highest = std::numeric_limits<T>::max();
    }
  });
  if (low >= high) fail_data("bounds: expected low < high, found " + range(low, high));
  if (low < lowest || high > highest + 1)
    fail_data("bounds: " + std::string(name) + " holds " + range(lowest, highest + 1) + ", found " +
              range(low, high));
  return static_cast<std::uint64_t>(high - 1 - low);
}

void check_scale(double scale) {
  if (std::signbit(scale) && !std::isnan(scale))
    fail_data("scale: expected a non-negative number, found " + decimal(scale));
}

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
  check_scale(scale);
  Tensor result(DType::f64, shape);
  for (double& value : result.mutable_data<double>()) value = loc + scale * next_gauss();
  return result;
}

void RandomState::shuffle(Tensor& tensor) { shuffle_rows(bits_, tensor); }

Tensor RandomState::permutation(std::int64_t n) { return shuffled_range(bits_, n); }

Tensor RandomState::choice(std::int64_t n, const Shape& shape, bool replace,
                           const std::optional<std::vector<double>>& p) {
  const std::size_t size = element_count(shape);
  check_choice(static_cast<std::size_t>(std::max<std::int64_t>(n, 0)), size, replace, p);
  if (p) return weighted_choice(bits_, shape, replace, *p);
  if (replace) return randint(0, n, DType::i64, shape);
  const Tensor order = permutation(n);
  Tensor result(DType::i64, shape);
  std::copy_n(order.data<std::int64_t>().begin(), size,
              result.mutable_data<std::int64_t>().begin());
  return result;
}

Tensor RandomState::choice(const Tensor& population, const Shape& shape, bool replace,
                           const std::optional<std::vector<double>>& p) {
  return picked(population, choice(one_axis_size(population), shape, replace, p));
}

}  // namespace attn
