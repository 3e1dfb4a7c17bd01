// Arithmetic of error bounds (core/expected_error.h explains the letters).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

#include "attn/core/gemm.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// All tensors are float64.
namespace bounds {

inline constexpr double kSpread = 4;  // in practice, n roundings add up to at most kSpread sqrt(n)

/// f(element, elements...) for the elements of f64 tensors of the same shape. Reuses the memory of
/// `first` if it is not shared.
template <class F, class... Others>
Tensor each(F f, Tensor first, const Others&... others) {
  double* const out = first.mutable_data<double>().data();
  const std::size_t count = first.size();
  for (std::size_t i = 0; i < count; ++i) out[i] = f(out[i], others.template data<double>()[i]...);
  return first;
}

inline double finite(double value) { return std::isfinite(value) ? value : 0; }

inline Tensor wide(const Tensor& x) { return cast(x, DType::f64); }

/// |x| in f64; 0 if x is not finite: such elements have weight 0 or are compared for equality.
inline Tensor magnitude(const Tensor& x) {
  return each([](double v) { return finite(std::abs(v)); }, wide(x));
}

inline Tensor plus(Tensor a, const Tensor& b) { return each(std::plus<>(), std::move(a), b); }

inline Tensor times(Tensor a, double factor) {
  return each([=](double v) { return v * factor; }, std::move(a));
}

inline Tensor product(const Tensor& a, const Tensor& b, Second second = Second::plain) {
  return matmul(a, b, second, "error");
}

inline double growth(std::size_t roundings) {
  const auto n = static_cast<double>(roundings);
  return std::min(n, kSpread * std::sqrt(n));
}

}  // namespace bounds

/// A tensor of the formula and the bound of its error.
struct Bounded {
  Tensor value;            ///< computed in f64
  Tensor error;            ///< bound for each element, f64
  bool is_stored = false;  ///< `error` includes rounding to the stored dtype
};

/// The rounding of the sum is in the bounds of what adds up.
inline Bounded sum_of(Bounded a, const Bounded& b) {
  return {bounds::plus(std::move(a.value), b.value), bounds::plus(std::move(a.error), b.error),
          true};
}

}  // namespace attn
