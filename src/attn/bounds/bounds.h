// Arithmetic of error bounds (bounds/expected_error.h explains the letters).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "attn/attention/gemm.h"
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
  [&](const auto*... data) {
    for (std::size_t i = 0; i < count; ++i) out[i] = f(out[i], data[i]...);
  }(others.template data<double>().data()...);
  return first;
}

inline double finite(double value) {
  return std::abs(value) <= std::numeric_limits<double>::max() ? value : 0;
}

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

inline bool is_zero(const Tensor& x) {
  const auto elements = x.data<double>();
  return std::all_of(elements.begin(), elements.end(), [](double v) { return v == 0; });
}

/// e^x - 1 for x >= 0, rounded upwards.
inline double expm1(double x) {
  return x < 0x1p-7 ? x * (1 + x * (1. / 2 + x * (1. / 6 + x / 23))) : std::expm1(x);
}

/// total + a b, where one of the factors is an error, and may be 0.
inline Tensor plus_product(Tensor total, const Tensor& a, const Tensor& b,
                           Second second = Second::plain) {
  return is_zero(a) || is_zero(b) ? total : plus(std::move(total), product(a, b, second));
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
  /// What products need to know of a right factor; nullopt if it is not known yet.
  struct Sizes {
    Tensor magnitudes;          ///< |value|
    std::vector<double> norms;  ///< of the columns of each matrix
    bool is_exact;              ///< the error is 0
  };
  std::optional<Sizes> sizes = {};
};

inline Bounded::Sizes sizes_of(const Bounded& x) {
  if (x.sizes) return *x.sizes;
  Bounded::Sizes sizes{bounds::magnitude(x.value), {}, bounds::is_zero(x.error)};
  const std::size_t rows = x.value.shape()[x.value.rank() - 2], columns = x.value.shape().back();
  if (x.value.size() == 0) return sizes;
  const auto elements = sizes.magnitudes.data<double>();
  sizes.norms.resize(elements.size() / rows);
  for (std::size_t i = 0; i < elements.size(); i += columns) {
    double* const norms = sizes.norms.data() + i / (rows * columns) * columns;
    for (std::size_t j = 0; j < columns; ++j) norms[j] += elements[i + j] * elements[i + j];
  }
  for (double& norm : sizes.norms) norm = std::sqrt(norm);
  return sizes;
}

/// The rounding of the sum is in the bounds of what adds up.
inline Bounded sum_of(Bounded a, const Bounded& b) {
  return {bounds::plus(std::move(a.value), b.value), bounds::plus(std::move(a.error), b.error),
          true};
}

}  // namespace attn
