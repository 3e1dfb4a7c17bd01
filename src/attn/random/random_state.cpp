#include "attn/random/random_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/random/generator.h"

namespace attn {

std::uint64_t checked_range(int128 low, int128 high, DType dtype) {
  const std::string name(name_of(dtype));
  if (is_float(dtype))
    throw Error(ErrorKind::data, "dtype: expected an integer type or bool, found " + name);
  int128 lowest = 0, highest = 0;
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>) {
      lowest = std::numeric_limits<T>::min();
      highest = std::numeric_limits<T>::max();
    }
  });
  const std::string found = "found [" + decimal(low) + ", " + decimal(high) + ")";
  if (low >= high) throw Error(ErrorKind::data, "bounds: expected low < high, " + found);
  if (low < lowest || high > highest + 1)
    throw Error(ErrorKind::data, "bounds: " + name + " holds [" + decimal(lowest) + ", " +
                                     decimal(highest + 1) + "), " + found);
  return static_cast<std::uint64_t>(high - 1 - low);
}

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
    throw Error(ErrorKind::data, "scale: expected a non-negative number, found " + decimal(scale));
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

namespace {

/// Kahan's compensated sum, as in NumPy, to decide whether p sums to 1.
double compensated_sum(const std::vector<double>& values) {
  double sum = 0, excess = 0;
  for (const double value : values) {
    const double term = value - excess;
    const double next = sum + term;
    excess = next - sum - term;
    sum = next;
  }
  return sum;
}

void check_probabilities(const std::vector<double>& p, std::size_t n) {
  const auto refuse = [](const std::string& text) { throw Error(ErrorKind::data, "p: " + text); };
  if (p.size() != n)
    refuse("expected " + std::to_string(n) + " probabilities, found " + std::to_string(p.size()));
  const double sum = compensated_sum(p);
  if (std::isnan(sum)) refuse("expected probabilities, found NaN");
  for (const double value : p)
    if (value < 0) refuse("expected probabilities >= 0, found " + decimal(value));
  if (std::abs(sum - 1) > std::sqrt(std::numeric_limits<double>::epsilon()))
    refuse("expected probabilities that sum to 1, found a sum of " + decimal(sum));
}

std::vector<double> cumulative(const std::vector<double>& p) {
  std::vector<double> sums(p.size());
  std::partial_sum(p.begin(), p.end(), sums.begin());
  const double total = sums.back();
  for (double& sum : sums) sum /= total;
  return sums;
}

std::size_t inverse(const std::vector<double>& sums, double u) {
  return static_cast<std::size_t>(std::upper_bound(sums.begin(), sums.end(), u) - sums.begin());
}

}  // namespace

/// `p` is valid and has enough non-zero entries to draw without replacement.
Tensor RandomState::weighted_choice(const Shape& shape, bool replace, std::vector<double> p) {
  Tensor result(DType::i64, shape);
  const auto found = result.mutable_data<std::int64_t>();
  if (found.empty()) return result;
  if (replace) {
    const std::vector<double> sums = cumulative(p);
    for (std::int64_t& index : found)
      index = static_cast<std::int64_t>(inverse(sums, bits_.next_double()));
    return result;
  }
  for (std::size_t count = 0; count < found.size();) {
    const std::vector<double> sums = cumulative(p);
    for (std::size_t missing = found.size() - count; missing > 0; --missing) {
      const std::size_t index = inverse(sums, bits_.next_double());
      if (p[index] == 0) continue;  // already drawn
      p[index] = 0;
      found[count++] = static_cast<std::int64_t>(index);
    }
  }
  return result;
}

Tensor RandomState::choice(std::int64_t n, const Shape& shape, bool replace,
                           const std::optional<std::vector<double>>& p) {
  const std::size_t size = element_count(shape);
  const auto population = static_cast<std::size_t>(std::max<std::int64_t>(n, 0));
  if (population == 0 && size > 0)
    throw Error(ErrorKind::data, "population: expected at least one element, found none");
  if (p) check_probabilities(*p, population);
  if (!replace) {
    const auto drawable = !p ? population
                             : static_cast<std::size_t>(std::count_if(
                                   p->begin(), p->end(), [](double x) { return x > 0; }));
    if (size > drawable)
      throw Error(ErrorKind::data, "population: cannot draw " + std::to_string(size) +
                                       " elements without replacement from " +
                                       std::to_string(drawable) +
                                       (!p ? "" : " of non-zero probability"));
  }
  if (p) return weighted_choice(shape, replace, *p);
  if (replace) return randint(0, n, DType::i64, shape);
  const Tensor order = permutation(n);
  Tensor result(DType::i64, shape);
  std::copy_n(order.data<std::int64_t>().begin(), size,
              result.mutable_data<std::int64_t>().begin());
  return result;
}

Tensor RandomState::choice(const Tensor& population, const Shape& shape, bool replace,
                           const std::optional<std::vector<double>>& p) {
  if (population.rank() != 1)
    throw Error(ErrorKind::data,
                "population: expected one axis, found shape " + to_string(population.shape()));
  const auto n = static_cast<std::int64_t>(population.size());
  const Tensor indices = choice(n, shape, replace, p);
  Tensor result(population.dtype(), shape);
  const std::size_t width = size_of(population.dtype());
  std::byte* to = result.mutable_raw();
  for (const std::int64_t index : indices.data<std::int64_t>()) {
    std::memcpy(to, population.raw() + static_cast<std::size_t>(index) * width, width);
    to += width;
  }
  return result;
}

}  // namespace attn
