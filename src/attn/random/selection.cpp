#include "attn/random/selection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "attn/base/error.h"

namespace attn {

void require_rows(const Tensor& tensor) {
  if (tensor.rank() == 0)
    fail_data({.expected = "an array of at least one axis", .found = "a number"});
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
  const auto refuse = [](const std::string& text) { fail_data("p: " + text); };
  if (p.size() != n)
    refuse("expected " + std::to_string(n) + " probabilities, found " + std::to_string(p.size()));
  const double sum = compensated_sum(p);
  if (std::isnan(sum)) refuse("expected probabilities, found NaN");
  for (const double value : p)
    if (value < 0) refuse("expected probabilities >= 0, found " + decimal(value));
  if (std::abs(sum - 1) > std::sqrt(std::numeric_limits<double>::epsilon()))
    refuse("expected probabilities that sum to 1, found a sum of " + decimal(sum));
}

}  // namespace

void check_choice(std::size_t n, std::size_t size, bool replace,
                  const std::optional<std::vector<double>>& p) {
  if (n == 0 && size > 0) fail_data("population: expected at least one element, found none");
  if (p) check_probabilities(*p, n);
  if (replace) return;
  const auto drawable = !p ? n
                           : static_cast<std::size_t>(std::count_if(
                                 p->begin(), p->end(), [](double x) { return x > 0; }));
  if (size > drawable)
    fail_data("population: cannot draw " + std::to_string(size) +
              " elements without replacement from " + std::to_string(drawable) +
              (!p ? "" : " of non-zero probability"));
}

std::int64_t one_axis_size(const Tensor& population) {
  if (population.rank() != 1)
    fail_data("population: expected one axis, found shape " + to_string(population.shape()));
  return static_cast<std::int64_t>(population.size());
}

Tensor picked(const Tensor& population, const Tensor& indices) {
  Shape shape = indices.shape();
  for (std::size_t axis = 1; axis < population.rank(); ++axis)
    shape.push_back(population.shape()[axis]);
  Tensor result(population.dtype(), shape);
  if (result.size() == 0) return result;
  const std::size_t width = result.bytes() / indices.size();
  std::byte* to = result.mutable_raw();
  for (const std::int64_t index : indices.data<std::int64_t>()) {
    std::memcpy(to, population.raw() + static_cast<std::size_t>(index) * width, width);
    to += width;
  }
  return result;
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

}  // namespace attn
