// The metrics of a comparison by name, which gates refer to. `a` is the result, `b` the reference.
//
// Sums are over finite pairs. If all elements are equal, every metric has its ideal value, also
// where its definition divides by zero: 0, or infinity for snr, or 1 for cosine and pcc.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/metrics/comparison.h"
#include "attn/tensor/tensor.h"

namespace attn {

class Measured;

/// A metric without arguments. All results are f64.
struct Metric {
  std::string_view name;
  std::string_view definition;       ///< for help
  bool of_errors;                    ///< false: a property of the reference alone
  double (*value)(const Measured&);  ///< NaN: undefined
};

/// max_abs, mean_abs, ... in the order of help.
std::span<const Metric> metrics();

/// A metric with arguments, all of which are numbers of at least 0.
struct MetricFunction {
  std::string_view name;
  std::string_view definition;
  std::array<std::string_view, 2> parameters;
  double (*value)(const Measured&, double first, double second);
};

/// mismatched(rtol, atol) and abs_or_rel(abs, rel).
std::span<const MetricFunction> metric_functions();

/// Two compared tensors of the same shape. Metrics that need another pass over the elements are
/// computed when they are first used.
class Measured {
 public:
  /// `token_axes`: those that number tokens (token_axes_of()). `stored`: the dtype in which a
  /// kernel stores `a`. The references outlive this object.
  Measured(const Tensor& a, const Tensor& b, const Comparison& found,
           std::vector<std::size_t> token_axes, DType stored)
      : a_(a), b_(b), found_(found), token_axes_(std::move(token_axes)), stored_(stored) {}

  const Comparison& found() const { return found_; }

  /// The percentile of |a_t - b_t| / |b_t| over the tokens t, Euclidean norms, with linear
  /// interpolation as in numpy.percentile; 0 without tokens.
  double token_percentile(double percent) const;
  /// The share of elements with |a - b| > atol + rtol |b|.
  double mismatched(double rtol, double atol) const;
  /// The share of elements with neither |a - b| < absolute nor |a - b| / (|b| + 1e-6) < relative.
  double neither_abs_nor_rel(double absolute, double relative) const;
  /// max |((b + 0.3) - 0.3) - b|, where b and each operation are rounded to the stored dtype.
  double reference_rounding() const;

 private:
  const std::vector<double>& token_errors() const;

  const Tensor &a_, &b_;
  const Comparison& found_;
  std::vector<std::size_t> token_axes_;
  DType stored_;
  mutable std::optional<std::vector<double>> token_errors_;  ///< sorted
};

}  // namespace attn
