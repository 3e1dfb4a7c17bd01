#include "support/close.h"

#include <cmath>
#include <sstream>

std::vector<double> doubles_of(const attn::Tensor& tensor) {
  const attn::Tensor doubles = attn::cast(tensor, attn::DType::f64);
  const auto values = doubles.data<double>();
  return {values.begin(), values.end()};
}

double norm_bound(const std::vector<double>& values, double relative) {
  double largest = 0;
  for (const double value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  return relative * largest;
}

std::string difference(const attn::Tensor& actual, const Expected& expected) {
  if (actual.shape() != expected.shape)
    return "shape " + attn::to_string(actual.shape()) + ", expected " +
           attn::to_string(expected.shape);
  const std::vector<double> values = doubles_of(actual);
  if (values.size() != expected.values.size()) return "the expected values do not fill the shape";
  std::ostringstream text;
  text.precision(17);
  double worst = -1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double found = values[i], wanted = expected.values[i];
    if (std::isinf(wanted) && found == wanted) continue;
    const double distance = std::fabs(found - wanted);  // NaN when either is, or infinities differ
    if (distance <= expected.bound) continue;
    if (!std::isnan(distance) && distance <= worst) continue;
    worst = std::isnan(distance) ? HUGE_VAL : distance;
    text.str("");
    text << "element " << i << " is " << found << ", expected " << wanted << " within "
         << expected.bound;
  }
  return text.str();
}
