#include "attn/attention/normalise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/attention/weighted_values.h"

namespace attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The scores that are normalised together, and the target of their weights.
template <class T>
struct ScoreGroup {
  std::span<const T> scores;
  std::span<const bool> visible;
  std::span<T> weights;
  double sink;                      ///< -inf: none
  std::span<const bool> is_padded;  ///< of each query
};

/// log(sum exp x) over the visible keys. If `largest` is infinite, there are no finite differences
/// to sum.
double log_sum(double largest, double sum, bool has_nan) {
  if (has_nan) return kNaN;
  return std::isinf(largest) ? largest : largest + std::log(sum);
}

/// Fills the group's weights and returns its logsumexp.
template <class T>
double softmax(const ScoreGroup<T>& group) {
  const auto& [x, visible, w, sink, is_padded] = group;
  T largest = static_cast<T>(sink);
  bool has_nan = false;
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (x[j] > largest) largest = x[j];  // hidden ones are -inf
    has_nan |= visible[j] && std::isnan(x[j]);
  }
  double sum = sink == -kInfinity ? 0 : std::exp(sink - static_cast<double>(largest));
  for (std::size_t j = 0; j < x.size(); ++j) {
    w[j] = visible[j] ? std::exp(x[j] - largest) : T{0};
    sum += static_cast<double>(w[j]);
  }
  for (std::size_t j = 0; j < x.size(); ++j)
    if (visible[j]) w[j] = static_cast<T>(static_cast<double>(w[j]) / sum);
  return log_sum(static_cast<double>(largest), sum, has_nan);
}

/// The weights of visible scores by any normaliser except softmax.
std::vector<double> other_weights(std::vector<double> x, const Options& options) {
  if (options.normaliser == Normaliser::none || x.empty()) return x;
  if (options.normaliser == Normaliser::sigmoid) {
    for (double& value : x) value = 1 / (1 + std::exp(-value));
    return x;
  }
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (std::any_of(x.begin(), x.end(), is_nan) || std::isinf(*std::max_element(x.begin(), x.end())))
    return std::vector<double>(x.size(), kNaN);
  if (options.normaliser == Normaliser::sparsemax) return sparsemax(x);
  if (options.normaliser == Normaliser::entmax15) return entmax15(x);
  if (options.normaliser == Normaliser::hardmax) return hardmax(x);
  return top_k_softmax(x, static_cast<std::size_t>(options.top_k));
}

/// The weights of a group without visible keys: those of empty_rows, but 0 for padded queries.
template <class T>
void fill_empty(const ScoreGroup<T>& group, EmptyRows empty_rows) {
  const auto& [x, visible, w, sink, is_padded] = group;
  const std::size_t S = w.size() / is_padded.size();
  const auto queries =
      static_cast<std::size_t>(std::count(is_padded.begin(), is_padded.end(), false));
  const T weight = static_cast<T>(empty_weight(empty_rows, queries * S));
  for (std::size_t i = 0; i < is_padded.size(); ++i)
    std::fill_n(w.subspan(i * S).begin(), S, is_padded[i] ? T{0} : weight);
}

template <class T>
double normalise_group(const ScoreGroup<T>& group, const Options& options) {
  const auto& [x, visible, w, sink, is_padded] = group;
  const bool none = std::find(visible.begin(), visible.end(), true) == visible.end();
  if (none && (sink == -kInfinity || is_padded.front())) {
    fill_empty(group, options.empty_rows);
    return -kInfinity;
  }
  const double logsumexp = softmax(group);
  if (options.normaliser == Normaliser::softmax) return logsumexp;
  std::vector<double> seen;
  for (std::size_t j = 0; j < x.size(); ++j)
    if (visible[j]) seen.push_back(static_cast<double>(x[j]));
  const std::vector<double> weights = other_weights(std::move(seen), options);
  auto next = weights.begin();
  for (std::size_t j = 0; j < x.size(); ++j)
    if (visible[j]) w[j] = static_cast<T>(*next++);
  return logsumexp;
}

template <class T>
std::pair<Tensor, Tensor> normalise_as(const Tensor& scores, const VisibleKeys& visible_keys,
                                       const std::optional<Tensor>& sinks, const Options& options) {
  const Shape& shape = scores.shape();
  const std::size_t H = shape[1], L = shape[2], S = shape[3];
  Tensor weights(dtype_of<T>, shape), logsumexp(dtype_of<T>, {shape[0], H, L});
  const auto x = scores.data<T>();
  const auto visible = visible_keys.keys.data<bool>(),
             is_padded = visible_keys.padding.data<bool>();
  const auto w = weights.mutable_data<T>(), out = logsumexp.mutable_data<T>();
  const std::optional<Tensor> sink = sinks ? std::optional(cast(*sinks, DType::f64)) : std::nullopt;
  const std::size_t rows = options.softmax_axis == SoftmaxAxis::all ? L : 1;  // normalised together
  for (std::size_t i = 0; i < out.size(); i += rows) {
    const std::size_t from = i * S, count = rows * S;
    const ScoreGroup<T> group{x.subspan(from, count), visible.subspan(from, count),
                              w.subspan(from, count),
                              sink ? sink->data<double>()[i / L % H] : -kInfinity,
                              is_padded.subspan(i / L / H * L + i % L, rows)};
    std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(i), rows,
                static_cast<T>(normalise_group(group, options)));
  }
  return {std::move(weights), std::move(logsumexp)};
}

DType precision_of(SoftmaxPrecision precision, DType compute) {
  switch (precision) {
    case SoftmaxPrecision::f16:
      return DType::f16;
    case SoftmaxPrecision::bf16:
      return DType::bf16;
    case SoftmaxPrecision::f32:
      return DType::f32;
    case SoftmaxPrecision::f64:
      return DType::f64;
    case SoftmaxPrecision::automatic:
      break;
  }
  return compute;
}

Tensor divided(const Tensor& scores, double temperature) {
  if (temperature == 1) return scores;
  Tensor quotients = cast(scores, DType::f64);
  for (double& value : quotients.mutable_data<double>()) value /= temperature;
  return cast(quotients, scores.dtype());
}

}  // namespace

double empty_weight(EmptyRows empty_rows, std::size_t keys) {
  switch (empty_rows) {
    case EmptyRows::nan:
      return kNaN;
    case EmptyRows::uniform:
      return keys == 0 ? 0 : 1.0 / static_cast<double>(keys);
    case EmptyRows::zero:
      break;
  }
  return 0;
}

std::pair<Tensor, Tensor> normalise(const Tensor& masked, const VisibleKeys& visible,
                                    const std::optional<Tensor>& sinks, const Options& options) {
  const DType compute = masked.dtype();
  const DType precision = precision_of(options.softmax_precision, compute);
  const Tensor x = cast(divided(masked, options.temperature), precision);
  auto [weights, logsumexp] =
      precision == DType::f64 ? normalise_as<double>(x, visible, sinks, options)
                              : normalise_as<float>(cast(x, DType::f32), visible, sinks, options);
  return {cast(cast(std::move(weights), precision), compute), cast(std::move(logsumexp), compute)};
}

}  // namespace attn
