// How far two tensors of one shape are apart, element by element: `a` is judged, `b` is right.
//
//   close     |a - b| <= atol + rtol |b|, as in numpy.isclose, or at most `ulps` apart;
//             infinities of one sign are equal; NaN is close to nothing, or with equal_nan to NaN
//             (or, where each element has a bound of its own, |a - b| <= that)
//   relative  |a - b| / |b|; an element whose b is 0 has none, as in numpy.testing
//   ulps      how many steps from one representable value to the next lie between a and b (Goldberg
//             1991), after both are rounded to the dtype of the two with the fewer significant
//             bits: an f32 result is 0 ulps from an f64 reference when it is that, rounded.
//             Between integers it is their difference.
//
// Arithmetic is in double, in which every float is exact; differences of integers are exact, too,
// before they become doubles.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "attn/tensor/tensor.h"

namespace attn {

struct Tolerance {
  double rtol = 1e-7;
  double atol = 0;
  std::optional<double> ulps;  ///< nothing: distance in ulps is shown, but decides nothing
  bool equal_nan = false;
};

/// The largest of something, and the element where it stands first (row-major).
struct Extreme {
  double value = 0;
  std::size_t at = 0;
};

struct Comparison {
  bool same_shape = true;     ///< where false, nothing below is looked at
  std::size_t elements = 0;   ///< pairs
  std::size_t differing = 0;  ///< that are not close

  std::optional<Extreme> max_abs, max_rel, max_ulps;  ///< of pairs without NaN; none: no such pair
  /// |a - b| over the element's own bound, where there are bounds; 0 where both are 0.
  std::optional<Extreme> max_of_bound;
  std::optional<double> rms;     ///< root of the mean of (a - b)^2, of pairs without NaN
  std::optional<double> cosine;  ///< a . b / (|a| |b|), of finite pairs; none: one of them is 0

  std::size_t nan_in_both = 0, nan_in_a = 0, nan_in_b = 0;  ///< the last two: there alone
  std::optional<std::size_t> first_nan;                     ///< the first that makes a difference

  // Every pair is in one of these or has a NaN.
  std::size_t equal = 0;               ///< |a - b| = 0
  std::map<int, std::size_t> decades;  ///< 10^k <= |a - b| < 10^(k + 1), by k
  std::size_t infinitely_apart = 0;

  bool same() const { return same_shape && differing == 0; }
  bool equal_throughout() const { return same_shape && equal + nan_in_both == elements; }
};

/// `bounds` (f64, of b's shape) or nullptr: an element within its own bound is close, too.
Comparison compare(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                   const Tensor* bounds = nullptr);

/// a - b, f64: what a picture of the difference shows. Integers are subtracted exactly; equal
/// infinities give 0; NaN where either is NaN or only one is infinite.
Tensor difference(const Tensor& a, const Tensor& b);

/// What is compared, for comparison_text().
struct Compared {
  std::string name;  ///< printed as it is; "": none
  Tensor a, b;
  std::optional<Tensor> bounds;
  std::string bound_of;  ///< whose bounds: "f16"
};

/// For reading: shapes and dtypes, then how many elements differ, the extremes with their places
/// and values, and a histogram of |a - b| in bars.
std::string comparison_text(const Compared& compared, const Comparison& comparison);

/// The index of an element of the row-major place `at`: {1, 0, 2}.
Shape index_of(std::size_t at, const Shape& shape);

}  // namespace attn
