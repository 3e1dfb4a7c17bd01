#include "attn/core/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/core/gemm.h"

namespace attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The scores that are normalised together, and where their weights go.
template <class T>
struct Group {
  std::span<const T> scores;
  std::span<const bool> visible;
  std::span<T> weights;
};

template <class T>
void fill_empty(std::span<T> weights, EmptyRows empty_rows) {
  const T weight = empty_rows == EmptyRows::uniform
                       ? static_cast<T>(1.0 / static_cast<double>(weights.size()))
                   : empty_rows == EmptyRows::nan ? std::numeric_limits<T>::quiet_NaN()
                                                  : 0;
  std::fill(weights.begin(), weights.end(), weight);
}

/// log(sum exp x) over the visible: `largest` infinite has no finite differences to sum.
double log_sum(double largest, double sum, bool has_nan) {
  if (has_nan) return std::numeric_limits<double>::quiet_NaN();
  return std::isinf(largest) ? largest : largest + std::log(sum);
}

/// Fills the group's weights and returns its logsumexp.
template <class T>
double normalise(const Group<T>& group, EmptyRows empty_rows) {
  const auto& [x, visible, w] = group;
  if (std::find(visible.begin(), visible.end(), true) == visible.end()) {
    fill_empty(w, empty_rows);
    return -kInfinity;
  }
  T largest = -std::numeric_limits<T>::infinity();
  bool has_nan = false;
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (x[j] > largest) largest = x[j];  // hidden ones are -inf
    has_nan |= visible[j] && std::isnan(x[j]);
  }
  double sum = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    w[j] = visible[j] ? std::exp(x[j] - largest) : T{0};
    sum += static_cast<double>(w[j]);
  }
  for (std::size_t j = 0; j < x.size(); ++j)
    if (visible[j]) w[j] = static_cast<T>(static_cast<double>(w[j]) / sum);
  return log_sum(static_cast<double>(largest), sum, has_nan);
}

template <class T>
Normalised softmax_as(const Masked& masked, SoftmaxAxis axis, EmptyRows empty_rows) {
  const Shape& shape = masked.scores.shape();
  const std::size_t H = shape[1], L = shape[2], S = shape[3];
  Normalised result{Tensor(masked.scores.dtype(), shape),
                    Tensor(masked.scores.dtype(), {shape[0], shape[1], L})};
  const auto x = masked.scores.data<T>();
  const auto visible = masked.visible.data<bool>();
  const auto w = result.weights.mutable_data<T>();
  const auto out = result.logsumexp.mutable_data<T>();
  const std::size_t rows = axis == SoftmaxAxis::all ? L : 1;  // normalised together
  for (std::size_t i = 0; i < out.size(); i += rows) {
    const std::size_t from = i * S, count = rows * S;
    const bool is_padding = rows == 1 && masked.padding[i / L / H * L + i % L];
    const double log_sum_exp =
        normalise<T>({x.subspan(from, count), visible.subspan(from, count), w.subspan(from, count)},
                     is_padding ? EmptyRows::zero : empty_rows);
    std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(i), rows, static_cast<T>(log_sum_exp));
  }
  return result;
}

bool all_finite(const Tensor& values) {
  return visit(values.dtype(), [&]<class T>(Type<T>) {
    const auto data = values.data<T>();
    return std::all_of(data.begin(), data.end(),
                       [](T value) { return std::isfinite(static_cast<double>(value)); });
  });
}

template <class T>
Tensor weigh_visible(const Tensor& weights, const Tensor& values, const Tensor& visible) {
  const std::size_t L = weights.shape()[2], S = weights.shape()[3], Dv = values.shape()[3];
  const std::size_t sharing = weights.shape()[1] / values.shape()[1];
  Tensor context(dtype_of<T>, {weights.shape()[0], weights.shape()[1], L, Dv});
  const auto w = weights.data<T>(), v = values.data<T>();
  const auto seen = visible.data<bool>();
  const auto out = context.mutable_data<T>();
  for (std::size_t row = 0; row < w.size() / S; ++row)
    for (std::size_t j = 0; j < S; ++j) {
      const std::size_t at = row * S + j;
      if (!seen[at] && w[at] == 0) continue;
      const auto value = v.subspan((row / L / sharing * S + j) * Dv, Dv);
      for (std::size_t d = 0; d < Dv; ++d) out[row * Dv + d] += w[at] * value[d];
    }
  return context;
}

}  // namespace

Normalised softmax(const Masked& masked, SoftmaxAxis axis, EmptyRows empty_rows) {
  return masked.scores.dtype() == DType::f64 ? softmax_as<double>(masked, axis, empty_rows)
                                             : softmax_as<float>(masked, axis, empty_rows);
}

Tensor weigh(const Tensor& weights, const Tensor& values, const Tensor& visible) {
  // A product of matrices cannot leave a key out, and need not where every value is finite.
  if (all_finite(values)) return matmul(weights, values, Second::plain, "context");
  const Tensor v = cast(values, weights.dtype());
  return weights.dtype() == DType::f64 ? weigh_visible<double>(weights, v, visible)
                                       : weigh_visible<float>(weights, v, visible);
}

}  // namespace attn
