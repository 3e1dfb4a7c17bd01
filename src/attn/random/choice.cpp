// RandomState::choice: samples from a population, with or without replacement and probabilities.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "attn/base/error.h"
#include "attn/random/decimal.h"
#include "attn/random/random_state.h"

namespace attn {
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
    if (value < 0) refuse("expected no negative probability, found " + decimal(value));
  if (std::abs(sum - 1) > std::sqrt(std::numeric_limits<double>::epsilon()))
    refuse("expected probabilities that sum to 1, found the sum " + decimal(sum));
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
      throw Error(ErrorKind::data, "population: " + std::to_string(size) +
                                       " draws without replacement need as many elements" +
                                       (!p ? "" : " of non-zero probability") + ", found " +
                                       std::to_string(drawable));
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
