// Elementwise comparison of tensor `a` with the reference `b` of the same shape, and its report as
// text.
//
//   close     |a - b| <= atol + rtol |b|, as in numpy.isclose; or at most `ulps` apart; or within
//             the element's own bound. Infinities of the same sign are equal. NaN is close to
//             nothing, except with equal_nan to NaN.
//   relative  |a - b| / |b|, undefined where b is 0, as in numpy.testing
//   ulps      steps between representable values from a to b (Goldberg 1991), after rounding both
//             to the dtype with fewer significant bits: an f32 result is 0 ulps from an f64
//             reference if it is the correctly rounded reference. For integers, their difference.
//
// Computed in double, which is exact for every float; differences of integers are exact before they
// are converted to double.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

struct Tolerance {
  double rtol = 0, atol = 0;
  std::optional<double> ulps;  ///< if not set, ulps are reported but not tested
  bool equal_nan = false;
};

/// rtol and atol of torch.testing.assert_close: the larger of those of the two dtypes, which are 0
/// for integers and booleans.
Tolerance default_tolerance(DType a, DType b);

/// "rtol 1e-07, atol 1e-07 or 4 ulps"; "" if only equal elements are close.
std::string tolerance_text(const Tolerance& tolerance);

/// A value, the row-major index of the pair of elements that has it first, and this pair.
struct Extreme {
  double value = 0;
  std::size_t at = 0;
  std::optional<Tensor> a = {}, b = {};  ///< 0-d, of the tensors' dtypes
  std::optional<double> bound = {};
};

struct Comparison {
  bool same_shape = true;     ///< if false, the rest is not set
  std::size_t elements = 0;   ///< pairs compared
  std::size_t differing = 0;  ///< pairs that are not close

  std::optional<Extreme> max_abs, max_rel, max_ulps;  ///< of pairs without NaN, if any
  /// |a - b| divided by the element's bound, with bounds; 0 where both are 0.
  std::optional<Extreme> max_of_bound;
  std::optional<double> mean_abs, rms;  ///< mean |a - b|, sqrt(mean (a - b)^2); without NaN

  // Of finite pairs. Not set if a denominator is 0.
  std::optional<double> nmse;     ///< |a - b|^2 / |b|^2; the signal-to-noise ratio is 1 / nmse
  std::optional<double> cosine;   ///< a . b / (|a| |b|)
  std::optional<double> pearson;  ///< the cosine after subtracting the means of a and of b
  std::optional<double> factor;   ///< a . b / |b|^2: the c for which |a - c b| is smallest
  std::size_t finite = 0;         ///< such pairs
  double norm_of_a = 0, norm_of_b = 0, norm_of_error = 0;  ///< Euclidean norms
  double max_of_b = 0;                                     ///< max |b|

  std::size_t nan_in_both = 0, nan_in_a = 0,
              nan_in_b = 0;          ///< the last two: NaN in only one of them
  std::optional<Extreme> first_nan;  ///< first pair with a NaN that is not close

  // Each pair without NaN is counted in one of these.
  std::size_t equal = 0;               ///< |a - b| = 0
  std::map<int, std::size_t> decades;  ///< pairs with 10^k <= |a - b| < 10^(k + 1), by k
  std::size_t infinitely_apart = 0;

  bool same() const { return same_shape && differing == 0; }
  /// Whether NaN and infinities are at the same places.
  bool finite_at_the_same_places() const {
    return same_shape && nan_in_a + nan_in_b + infinitely_apart == 0;
  }
  bool equal_throughout() const { return same_shape && equal + nan_in_both == elements; }
};

/// `bounds` (f64, of b's shape) or nullptr: an element within its own bound is close as well.
Comparison compare(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                   const Tensor* bounds = nullptr);

/// An axis whose elements are compared separately: (index / stride) % length is an element's place
/// on it. A packed axis of H * Dv columns has H parts with a stride of Dv.
struct PartAxis {
  std::string name;  ///< "head", "batch"
  std::size_t length = 1, stride = 1;
};

/// The comparison of one part of the tensors.
struct PartComparison {
  std::vector<std::size_t> index;  ///< on each axis
  Comparison found;                ///< positions are those in the whole tensors
};

/// Compares each combination of positions on `axes`, outermost first, in row-major order.
std::vector<PartComparison> compare_parts(const Tensor& a, const Tensor& b,
                                          const Tolerance& tolerance, const Tensor* bounds,
                                          const std::vector<PartAxis>& axes);

/// Compares tensors of which a part is in memory at a time.
class PartwiseComparison {
 public:
  /// As compare() and compare_parts() of tensors of this shape.
  PartwiseComparison(const Shape& shape, const Tolerance& tolerance, std::vector<PartAxis> axes);
  ~PartwiseComparison();

  /// Rows (..., columns) of the same shape, of which row i starts at element starts[i] of the
  /// whole.
  void add(const Tensor& a, const Tensor& b, const Tensor* bounds,
           const std::vector<std::size_t>& starts);

  Comparison whole();
  std::vector<PartComparison> parts();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// a - b in f64, for pictures of the difference. Integers are subtracted exactly. Equal infinities
/// give 0; the result is NaN where either is NaN or only one is infinite.
Tensor difference(const Tensor& a, const Tensor& b);

/// The inputs of a comparison, for comparison_text().
struct Compared {
  std::string name;  ///< printed unchanged; may be ""
  Tensor a, b;
  std::optional<Tensor> bounds;
  std::string bound_of;                   ///< what the bounds are for: "f16"
  Tolerance tolerance = {};               ///< that of the comparison, without bounds
  std::string verdict = {};               ///< "" if the tolerance or the bounds decide
  std::vector<std::string> reasons = {};  ///< of the verdict, a line each
  bool has_elements = true;               ///< false: those of b and of the bounds are not set
};

/// How much comparison_text() says.
enum class Detail {
  line,     ///< only its first line, with the largest error
  summary,  ///< without means, correlations and the histogram
  all,
};

/// A report: shapes and dtypes, the number of elements that differ, these lines, the extremes with
/// their indices and values, means, and, if any element differs, a histogram of |a - b|. Without
/// ulps in the tolerance, their maximum is omitted if all elements are close: near 0 it is large.
std::string comparison_text(const Compared& compared, const Comparison& comparison,
                            const std::vector<std::string>& lines = {},
                            Detail detail = Detail::all);

/// A table of the parts that differ, those with the largest errors first; "" if there is only one
/// part or none differs.
std::string parts_text(const std::vector<PartAxis>& axes, const std::vector<PartComparison>& parts);

}  // namespace attn
