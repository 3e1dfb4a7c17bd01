#include "attn/random/python_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <unordered_set>
#include <utility>

#include "attn/base/error.h"
#include "attn/random/selection.h"

namespace attn {
namespace {

/// A tensor of results of next(), one for each element.
template <class T, class Next>
Tensor filled(DType dtype, const Shape& shape, const Next& next) {
  Tensor result(dtype, shape);
  for (T& value : result.mutable_data<T>()) value = next();
  return result;
}

[[noreturn]] void refuse_empty() {
  fail_data("expected at least one element to choose from, found none");
}

}  // namespace

Tensor PythonRandom::random(const Shape& shape) {
  return filled<double>(DType::f64, shape, [&] { return bits_.next_double(); });
}

Tensor PythonRandom::uniform(double a, double b, const Shape& shape) {
  return filled<double>(DType::f64, shape, [&] { return a + (b - a) * bits_.next_double(); });
}

double PythonRandom::next_gauss() {
  if (gauss_) return *std::exchange(gauss_, std::nullopt);
  const double angle = bits_.next_double() * (2 * std::numbers::pi);
  const double radius = std::sqrt(-2 * std::log(1 - bits_.next_double()));
  gauss_ = std::sin(angle) * radius;
  return std::cos(angle) * radius;
}

Tensor PythonRandom::gauss(double mu, double sigma, const Shape& shape) {
  return filled<double>(DType::f64, shape, [&] { return mu + next_gauss() * sigma; });
}

double PythonRandom::next_normal() {
  const double width = 4 * std::exp(-0.5) / std::sqrt(2.0);
  for (;;) {
    const double u = bits_.next_double(), v = 1 - bits_.next_double();
    const double z = width * (u - 0.5) / v;
    if (z * z / 4 <= -std::log(v)) return z;
  }
}

Tensor PythonRandom::normalvariate(double mu, double sigma, const Shape& shape) {
  return filled<double>(DType::f64, shape, [&] { return mu + next_normal() * sigma; });
}

std::uint64_t PythonRandom::bits(int k) {
  std::uint64_t value = 0;
  for (int done = 0; done < k; done += 32) {
    const int discarded = std::max(0, 32 - (k - done));
    value |= std::uint64_t{bits_.next32() >> discarded} << done;
  }
  return value;
}

std::uint64_t PythonRandom::below(std::uint64_t n) {
  const int width = 64 - std::countl_zero(n);
  std::uint64_t value = bits(width);
  while (value >= n) value = bits(width);
  return value;
}

Tensor PythonRandom::randrange(int128 start, int128 stop, const Shape& shape) {
  using Limits = std::numeric_limits<std::int64_t>;
  const std::string found = "found [" + decimal(start) + ", " + decimal(stop) + ")";
  if (start >= stop) fail_data("range: expected start < stop, " + found);
  if (start < Limits::min() || stop > int128{Limits::max()} + 1)
    fail_data("range: expected 64-bit integers, " + found);
  if (stop - start > int128{std::numeric_limits<std::uint64_t>::max()})
    fail_data("range: expected fewer than 2^64 integers, " + found);
  const auto size = static_cast<std::uint64_t>(stop - start);
  return filled<std::int64_t>(DType::i64, shape, [&] {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(start) + below(size));
  });
}

Tensor PythonRandom::getrandbits(std::int64_t k, const Shape& shape) {
  if (k < 0 || k > 63) fail_data("k: expected 0 to 63, found " + std::to_string(k));
  return filled<std::int64_t>(DType::i64, shape,
                              [&] { return static_cast<std::int64_t>(bits(static_cast<int>(k))); });
}

Tensor PythonRandom::choice(std::int64_t n, const Shape& shape) {
  if (n <= 0) refuse_empty();
  return randrange(0, n, shape);
}

Tensor PythonRandom::choices(std::int64_t n, const std::optional<std::vector<double>>& weights,
                             const Shape& shape) {
  if (n <= 0) refuse_empty();
  const auto last = static_cast<std::size_t>(n) - 1;
  if (!weights)
    return filled<std::int64_t>(DType::i64, shape, [&] {
      return static_cast<std::int64_t>(bits_.next_double() * static_cast<double>(n));
    });
  if (weights->size() != last + 1)
    fail_data("weights: expected " + std::to_string(n) + " numbers, found " +
              std::to_string(weights->size()));
  if (std::any_of(weights->begin(), weights->end(), [](double weight) { return weight < 0; }))
    fail_data("weights: expected numbers that are not negative");
  std::vector<double> sums(weights->size());
  std::partial_sum(weights->begin(), weights->end(), sums.begin());
  if (!(sums.back() > 0) || std::isinf(sums.back()))
    fail_data("weights: expected a finite sum above 0, found " + decimal(sums.back()));
  return filled<std::int64_t>(DType::i64, shape, [&] {
    const double at = bits_.next_double() * sums.back();
    return std::upper_bound(sums.begin(), sums.end() - 1, at) - sums.begin();
  });
}

Tensor PythonRandom::sample(std::int64_t n, std::int64_t k) {
  if (k < 0 || k > n)
    fail_data("k: expected 0 to " + std::to_string(std::max<std::int64_t>(n, 0)) + ", found " +
              std::to_string(k));
  Tensor result(DType::i64, {static_cast<std::size_t>(k)});
  const auto found = result.mutable_data<std::int64_t>();
  // Python takes from a list of all indices if that is smaller than a set of the drawn ones.
  double set_size = 21;
  if (k > 5)
    set_size += std::pow(4, std::ceil(std::log(3.0 * static_cast<double>(k)) / std::log(4.0)));
  if (static_cast<double>(n) <= set_size) {
    std::vector<std::int64_t> pool(static_cast<std::size_t>(n));
    std::iota(pool.begin(), pool.end(), std::int64_t{0});
    for (std::int64_t& index : found) {
      const std::size_t at = below(pool.size());
      index = std::exchange(pool[at], pool.back());
      pool.pop_back();
    }
    return result;
  }
  std::unordered_set<std::int64_t> drawn;
  for (std::int64_t& index : found) do
      index = static_cast<std::int64_t>(below(static_cast<std::uint64_t>(n)));
    while (!drawn.insert(index).second);
  return result;
}

Tensor PythonRandom::shuffled(std::int64_t n) {
  Tensor result(DType::i64, {static_cast<std::size_t>(std::max<std::int64_t>(n, 0))});
  const auto order = result.mutable_data<std::int64_t>();
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[below(i + 1)]);
  return result;
}

}  // namespace attn
