#include "attn/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

namespace attn {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

double or_zero(const std::optional<Extreme>& extreme) { return extreme ? extreme->value : 0; }

/// `error` / `size`, which is 0 if there is no error and infinite if only `size` is 0.
double relative_to(double error, double size) {
  if (error == 0) return 0;
  return size == 0 ? kUnbounded : error / size;
}

double rel_l2(const Measured& m) {
  return relative_to(m.found().norm_of_error, m.found().norm_of_b);
}

double nmse(const Measured& m) { return m.found().nmse.value_or(std::pow(rel_l2(m), 2)); }

double ref_rms(const Measured& m) {
  const Comparison& found = m.found();
  return found.finite == 0 ? 0 : found.norm_of_b / std::sqrt(static_cast<double>(found.finite));
}

/// Of similarities, which are undefined if a or b is 0 or, for pcc, constant.
double one_if_equal(const std::optional<double>& value, const Measured& m) {
  return m.found().norm_of_error == 0 ? 1 : value.value_or(kUndefined);
}

double cosdiff(const Measured& m) {
  const Comparison& found = m.found();
  const double size = std::hypot(found.norm_of_a, found.norm_of_b);
  return std::pow(relative_to(found.norm_of_error, size), 2);
}

double share_outside(const Measured& m) {
  const Comparison& found = m.found();
  return found.elements == 0
             ? 0
             : static_cast<double>(found.differing) / static_cast<double>(found.elements);
}

constexpr Metric kMetrics[] = {
    {"max_abs", "max |a - b|", true, [](const Measured& m) { return or_zero(m.found().max_abs); }},
    {"mean_abs", "mean |a - b|", true,
     [](const Measured& m) { return m.found().mean_abs.value_or(0); }},
    {"rms", "RMS(a - b)", true, [](const Measured& m) { return m.found().rms.value_or(0); }},
    {"max_rel", "max |a - b| / |b|, where b is not 0", true,
     [](const Measured& m) { return or_zero(m.found().max_rel); }},
    {"rel_l2", "norm(a - b) / norm(b)", true, rel_l2},
    {"rms_ratio", "RMS(a - b) / (RMS(b) + 1e-8)", true,
     [](const Measured& m) { return m.found().rms.value_or(0) / (ref_rms(m) + 1e-8); }},
    {"nmse", "sum (a - b)^2 / sum b^2", true, nmse},
    {"snr", "-10 log10(nmse), in dB", true,
     [](const Measured& m) { return 0 - 10 * std::log10(nmse(m)); }},
    {"cosine", "sum a b / (norm(a) norm(b))", true,
     [](const Measured& m) { return one_if_equal(m.found().cosine, m); }},
    {"cosdiff", "1 - 2 sum a b / sum (a^2 + b^2)", true, cosdiff},
    {"pcc", "Pearson correlation of a and b", true,
     [](const Measured& m) { return one_if_equal(m.found().pearson, m); }},
    {"ulp", "max steps between representable values from a to b", true,
     [](const Measured& m) { return or_zero(m.found().max_ulps); }},
    {"mismatched", "share of elements outside the tolerance or error bound", true, share_outside},
    {"bound", "max |a - b| / its error bound; with --reference", false,
     [](const Measured& m) { return or_zero(m.found().max_of_bound); }},
    {"token_p50", "median over tokens of norm(a - b) / norm(b)", true,
     [](const Measured& m) { return m.token_percentile(50); }},
    {"token_p90", "90th percentile of the same", true,
     [](const Measured& m) { return m.token_percentile(90); }},
    {"token_p99", "99th percentile of the same", true,
     [](const Measured& m) { return m.token_percentile(99); }},
    {"token_max", "maximum of the same", true,
     [](const Measured& m) { return m.token_percentile(100); }},
    {"ref_rms", "RMS(b)", false, ref_rms},
    {"ref_max", "max |b|", false, [](const Measured& m) { return m.found().max_of_b; }},
    {"ref_l2", "norm(b)", false, [](const Measured& m) { return m.found().norm_of_b; }},
    {"ref_rounding", "max |((b + 0.3) - 0.3) - b|, rounded to A's dtype", false,
     [](const Measured& m) { return m.reference_rounding(); }}};

constexpr MetricFunction kFunctions[] = {
    {"mismatched",
     "share of elements with |a - b| > atol + rtol |b|",
     {"rtol", "atol"},
     [](const Measured& m, double rtol, double atol) { return m.mismatched(rtol, atol); }},
    {"abs_or_rel",
     "share of elements with neither |a - b| < abs nor |a - b| / (|b| + 1e-6) < rel",
     {"abs", "rel"},
     [](const Measured& m, double absolute, double relative) {
       return m.neither_abs_nor_rel(absolute, relative);
     }}};

/// ((value + 0.3) - 0.3) - value, each operation rounded to T. PyTorch computes operations on
/// 16-bit floats in float32.
template <class T>
double error_of_shift(T value) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr auto kShift = static_cast<Wide>(0.3);
  const T up(static_cast<Wide>(value) + kShift);
  const T back(static_cast<Wide>(up) - kShift);
  const T left(static_cast<Wide>(back) - static_cast<Wide>(value));
  return std::abs(static_cast<double>(left));
}

}  // namespace

std::span<const Metric> metrics() { return kMetrics; }

std::span<const MetricFunction> metric_functions() { return kFunctions; }

double Measured::mismatched(double rtol, double atol) const {
  const Comparison other = compare(a_, b_, {rtol, atol, {}, true});
  return other.elements == 0
             ? 0
             : static_cast<double>(other.differing) / static_cast<double>(other.elements);
}

double Measured::neither_abs_nor_rel(double absolute, double relative) const {
  const Tensor differences = difference(a_, b_), reference = cast(b_, DType::f64);
  const auto errors = differences.data<double>(), b = reference.data<double>();
  std::size_t outside = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const double error = std::abs(errors[i]);
    if (error >= absolute && error / (std::abs(b[i]) + 1e-6) >= relative) ++outside;
  }
  return errors.empty() ? 0 : static_cast<double>(outside) / static_cast<double>(errors.size());
}

double Measured::reference_rounding() const {
  const DType dtype = is_float(stored_) ? stored_ : DType::f64;
  const Tensor reference = cast(cast(b_, DType::f64), dtype);
  double largest = 0;
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (!std::is_integral_v<T>)
      for (const T value : reference.data<T>())
        if (std::isfinite(static_cast<double>(value)))
          largest = std::max(largest, error_of_shift(value));
  });
  return largest;
}

const std::vector<double>& Measured::token_errors() const {
  if (token_errors_) return *token_errors_;
  const Shape& shape = b_.shape();
  // Elements of one token that are next to each other.
  std::size_t run = 1;
  for (std::size_t k = shape.size();
       k-- > 0 && std::find(token_axes_.begin(), token_axes_.end(), k) == token_axes_.end();)
    run *= shape[k];
  std::size_t tokens = 1;
  for (const std::size_t axis : token_axes_) tokens *= shape[axis];
  if (b_.size() == 0) tokens = 0;
  const Tensor differences = difference(a_, b_), reference = cast(b_, DType::f64);
  const auto errors = differences.data<double>(), b = reference.data<double>();
  std::vector<long double> of_error(tokens), of_b(tokens);
  for (std::size_t start = 0; start < b.size(); start += run) {
    std::size_t token = 0;
    const Shape index = unravel_index(start, shape);
    for (const std::size_t axis : token_axes_) token = token * shape[axis] + index[axis];
    for (std::size_t i = start; i < start + run; ++i) {
      if (!std::isfinite(errors[i]) || !std::isfinite(b[i])) continue;
      of_error[token] += static_cast<long double>(errors[i]) * errors[i];
      of_b[token] += static_cast<long double>(b[i]) * b[i];
    }
  }
  std::vector<double> sorted(tokens);
  for (std::size_t token = 0; token < tokens; ++token)
    sorted[token] = relative_to(static_cast<double>(std::sqrt(of_error[token])),
                                static_cast<double>(std::sqrt(of_b[token])));
  std::sort(sorted.begin(), sorted.end());
  token_errors_ = std::move(sorted);
  return *token_errors_;
}

double Measured::token_percentile(double percent) const {
  const std::vector<double>& sorted = token_errors();
  if (sorted.empty()) return 0;
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double low = sorted[below], high = sorted[std::min(below + 1, sorted.size() - 1)];
  const double part = place - static_cast<double>(below);
  return part == 0 || low == high ? low : low + (high - low) * part;
}

}  // namespace attn
