#include "attn/diagnose/rounded_weights.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "attn/attention/gemm.h"
#include "attn/base/number_text.h"
#include "attn/diagnose/changes.h"

namespace attn {
namespace {

/// Replaces a row of masked scores by weights.
void round_row(std::span<double> row, double sink, const WeightRounding& how) {
  const double largest = std::max(sink, *std::max_element(row.begin(), row.end()));
  if (largest == -HUGE_VAL) return std::fill(row.begin(), row.end(), 0);
  double sum = std::exp(sink - largest), running = -HUGE_VAL;
  if (how.is_normalised)
    for (const double x : row) sum += std::exp(x - largest);
  for (std::size_t j = 0; j < row.size(); ++j) {
    if (how.block == 0 || how.is_normalised) {
      running = largest;
    } else if (j % how.block == 0) {
      const auto keys = row.subspan(j, std::min(how.block, row.size() - j));
      running = std::max(running, *std::max_element(keys.begin(), keys.end()));
    }
    if (row[j] == -HUGE_VAL) {
      row[j] = 0;
      continue;
    }
    const double shift = how.is_normalised ? 1 / sum : 1;
    const double exact = std::exp(row[j] - running) * shift;
    const double rescale = std::exp(running - largest);
    row[j] = how.factor == 0 ? exact : rounded_to_e4m3(how.factor * exact) / how.factor * rescale;
    if (!how.is_normalised) sum += how.sums_rounded ? row[j] : exact * rescale;
  }
  if (!how.is_normalised)
    for (double& x : row) x /= sum;
}

}  // namespace

std::string WeightRounding::text() const {
  return std::string(is_normalised ? "weights" : "exp(score - maximum)") +
         (factor == 1 ? "" : " times " + six_digits(factor)) + " in e4m3";
}

std::vector<WeightRounding> weight_roundings() {
  std::vector<WeightRounding> all;
  for (const double factor : {1., 256., 448.}) {
    all.push_back({true, factor, 0, false});
    for (const std::size_t block : {0, 32, 64, 128})
      for (const bool sums_rounded : {false, true})
        all.push_back({false, factor, block, sums_rounded});
  }
  return all;
}

double rounded_to_e4m3(double x) {
  constexpr double kLargest = 448;
  constexpr int kLeastExponent = -6, kMantissaBits = 3;
  if (x == 0) return 0;
  const int exponent = std::max(std::ilogb(x), kLeastExponent);
  const double step = std::ldexp(1, exponent - kMantissaBits);
  return std::min(kLargest, std::nearbyint(x / step) * step);
}

Tensor context_with(const WeightRounding& rounding, const Tensor& masked_scores,
                    const Variant& job) {
  Tensor weights = masked_scores;
  const Shape& shape = weights.shape();
  const Tensor* given = job.find(Input::sinks);
  const Tensor sinks = given != nullptr ? cast(*given, DType::f64) : Tensor();
  const auto all = weights.mutable_data<double>();
  for (std::size_t from = 0; from < all.size(); from += shape[3]) {
    const std::size_t head = from / (shape[2] * shape[3]) % shape[1];
    round_row(all.subspan(from, shape[3]),
              given != nullptr ? sinks.data<double>()[head] : -HUGE_VAL, rounding);
  }
  return matmul(weights, all_values(job), Second::plain, "");
}

}  // namespace attn
