#include "attn/report/comparison.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A pair of elements and their distance.
struct Pair {
  double a = 0, b = 0;
  double error = 0;  ///< |a - b|
  double ulps = 0;
  double bound = -1;  ///< the element's bound; negative: none
};

void raise(std::optional<Extreme>& extreme, double value, std::size_t at) {
  if (!extreme || value > extreme->value) extreme = Extreme{value, at};
}

bool is_close(const Pair& pair, const Tolerance& tolerance) {
  if (pair.error == 0) return true;
  if (!std::isfinite(pair.a) || !std::isfinite(pair.b)) return false;
  if (pair.error <= pair.bound) return true;
  if (tolerance.ulps && pair.ulps <= *tolerance.ulps) return true;
  return pair.error <= tolerance.atol + tolerance.rtol * std::abs(pair.b);
}

/// Accumulates the pairs.
class Census {
 public:
  Census(const Tolerance& tolerance, const Tensor* bounds) : tolerance_(tolerance) {
    if (bounds != nullptr) bounds_ = bounds->data<double>();
  }

  void add(std::size_t at, Pair pair) {
    ++result_.elements;
    if (std::isnan(pair.a) || std::isnan(pair.b)) return add_nan(at, pair);
    if (!bounds_.empty()) {
      pair.bound = bounds_[at];
      raise(result_.max_of_bound, pair.error == 0 ? 0 : pair.error / pair.bound, at);
    }
    if (!is_close(pair, tolerance_)) ++result_.differing;
    raise(result_.max_abs, pair.error, at);
    raise(result_.max_ulps, pair.ulps, at);
    if (pair.b != 0) raise(result_.max_rel, relative(pair), at);
    add_to_histogram(pair.error);
    // In long double, in which products of doubles cannot overflow.
    const long double a = pair.a, b = pair.b, error = pair.error;
    squares_ += error * error;
    ++count_;
    if (!std::isfinite(pair.a) || !std::isfinite(pair.b)) return;
    aa_ += a * a;
    bb_ += b * b;
    ab_ += a * b;
  }

  Comparison finish() {
    if (count_ > 0)
      result_.rms = static_cast<double>(std::sqrt(squares_ / static_cast<long double>(count_)));
    if (aa_ > 0 && bb_ > 0)
      result_.cosine = static_cast<double>(ab_ / std::sqrt(aa_) / std::sqrt(bb_));
    return std::move(result_);
  }

 private:
  static double relative(const Pair& pair) {
    return std::isinf(pair.error) ? kInfinity : pair.error / std::abs(pair.b);
  }

  void add_nan(std::size_t at, const Pair& pair) {
    const bool both = std::isnan(pair.a) && std::isnan(pair.b);
    ++(both ? result_.nan_in_both : std::isnan(pair.a) ? result_.nan_in_a : result_.nan_in_b);
    if (both && tolerance_.equal_nan) return;
    ++result_.differing;
    if (!result_.first_nan) result_.first_nan = at;
  }

  void add_to_histogram(double error) {
    if (error == 0)
      ++result_.equal;
    else if (std::isinf(error))
      ++result_.infinitely_apart;
    else
      ++result_.decades[static_cast<int>(std::floor(std::log10(error)))];
  }

  const Tolerance& tolerance_;
  std::span<const double> bounds_;
  Comparison result_;
  std::size_t count_ = 0;
  long double squares_ = 0, aa_ = 0, bb_ = 0, ab_ = 0;
};

/// Maps floats to integers such that neighbouring values differ by 1; both zeros are 0.
template <class Bits, class Float>
std::int64_t ordinal(Float value) {
  const auto bits = static_cast<std::int64_t>(std::bit_cast<Bits>(value));
  return bits < 0 ? std::numeric_limits<Bits>::min() - bits : bits;
}

std::int64_t ordinal_in(DType dtype, double value) {
  switch (dtype) {
    case DType::bf16:
      return ordinal<std::int16_t>(BFloat16(value).bits);
    case DType::f16:
      return ordinal<std::int16_t>(Half(value).bits);
    case DType::f32:
      return ordinal<std::int32_t>(static_cast<float>(value));
    default:
      return ordinal<std::int64_t>(value);
  }
}

double ulps_between(DType dtype, double a, double b) {
  if (std::isinf(a) || std::isinf(b)) return a == b ? 0 : kInfinity;
  const std::int64_t x = ordinal_in(dtype, a), y = ordinal_in(dtype, b);
  // Unsigned: two doubles can be nearly 2^64 apart.
  const auto low = static_cast<std::uint64_t>(std::min(x, y));
  return static_cast<double>(static_cast<std::uint64_t>(std::max(x, y)) - low);
}

/// The dtype in which ulps are counted; at least one of the two is a float.
DType coarser(DType a, DType b) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    if (a == dtype || b == dtype) return dtype;
  return DType::f64;
}

void add_floats(const Tensor& a, const Tensor& b, Census& census) {
  const DType dtype = coarser(a.dtype(), b.dtype());
  const Tensor wide_a = cast(a, DType::f64), wide_b = cast(b, DType::f64);
  const auto x = wide_a.data<double>(), y = wide_b.data<double>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    Pair pair{x[i], y[i]};
    if (!std::isnan(pair.a) && !std::isnan(pair.b) && pair.a != pair.b) {
      pair.error = std::abs(pair.a - pair.b);
      pair.ulps = ulps_between(dtype, pair.a, pair.b);
    }
    census.add(i, pair);
  }
}

/// All integers and booleans are exact in one of these two.
Tensor widened(const Tensor& integers) {
  return integers.dtype() == DType::u64 ? integers : cast(integers, DType::i64);
}

template <class A, class B>
void add_integers(std::span<const A> x, std::span<const B> y, Census& census) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Exact: a long double has 64 significant bits or more.
    const double error = static_cast<double>(
        std::abs(static_cast<long double>(x[i]) - static_cast<long double>(y[i])));
    census.add(i, {static_cast<double>(x[i]), static_cast<double>(y[i]), error, error, -1});
  }
}

/// Calls f(elements of a, elements of b) with the elements as one of these types.
template <class F>
void with_integers(const Tensor& a, const Tensor& b, F f) {
  const Tensor wide_a = widened(a), wide_b = widened(b);
  const auto with = [&](auto x) {
    if (wide_b.dtype() == DType::u64)
      f(x, wide_b.data<std::uint64_t>());
    else
      f(x, wide_b.data<std::int64_t>());
  };
  if (wide_a.dtype() == DType::u64)
    with(wide_a.data<std::uint64_t>());
  else
    with(wide_a.data<std::int64_t>());
}

}  // namespace

Comparison compare(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                   const Tensor* bounds) {
  if (a.shape() != b.shape()) {
    Comparison different;
    different.same_shape = false;
    return different;
  }
  Census census(tolerance, bounds);
  if (is_float(a.dtype()) || is_float(b.dtype()))
    add_floats(a, b, census);
  else
    with_integers(a, b, [&](auto x, auto y) { add_integers(x, y, census); });
  return census.finish();
}

Tensor difference(const Tensor& a, const Tensor& b) {
  Tensor result(DType::f64, a.shape());
  const auto out = result.mutable_data<double>();
  if (is_float(a.dtype()) || is_float(b.dtype())) {
    const Tensor wide_a = cast(a, DType::f64), wide_b = cast(b, DType::f64);
    const auto x = wide_a.data<double>(), y = wide_b.data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double less = x[i] == y[i] ? 0 : x[i] - y[i];
      out[i] = std::isinf(less) ? std::numeric_limits<double>::quiet_NaN() : less;
    }
    return result;
  }
  with_integers(a, b, [&](auto x, auto y) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<double>(static_cast<long double>(x[i]) - static_cast<long double>(y[i]));
  });
  return result;
}

Shape index_of(std::size_t at, const Shape& shape) {
  Shape index = shape;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = at % shape[axis];
    at /= shape[axis];
  }
  return index;
}

}  // namespace attn
