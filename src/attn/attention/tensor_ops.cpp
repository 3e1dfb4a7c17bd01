#include "attn/attention/tensor_ops.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "attn/attention/normalise.h"
#include "attn/attention/projection.h"
#include "attn/attention/qk_norm.h"
#include "attn/attention/query_scale.h"
#include "attn/attention/reductions.h"
#include "attn/attention/rotary.h"
#include "attn/attention/weighted_values.h"
#include "attn/problem/token_positions.h"
#include "attn/tensor/rearrange.h"

namespace attn {

Tensor TensorOps::chosen_rows(Tensor x) const {
  const bool all = in_.options.rows.empty() && in_.rows.size() == in_.L;
  return all ? std::move(x) : take_rows(x, in_.rows);
}

/// Tokens of the past precede the embeddings, unless the past belongs to a memory.
Position TensorOps::position() const {
  Position position = in_.options.position;
  if (!in_.past_of_memory) position.first += static_cast<std::int64_t>(in_.P);
  return position;
}

Tensor TensorOps::positions() const {
  return chosen_rows(sinusoidal_positions(position(), in_.L, in_[Input::embeddings]->shape()[2]));
}

Tensor TensorOps::add_positions(const Tensor& embeddings) const {
  return attn::add_positions(embeddings, position(), in_.compute);
}

Tensor TensorOps::input_normalised(Tensor x, const std::optional<Tensor>& weight,
                                   const std::optional<Tensor>& bias) const {
  if (in_.options.input_norm == QkNorm::none) return x;
  const Shape& shape = x.shape();
  return attn::qk_normalised(x.reshaped({shape[0], 1, shape[1], shape[2]}), weight, bias,
                             with_input_norm(in_.options), in_.compute)
      .reshaped(shape);
}

Tensor TensorOps::project(const Tensor& x, const std::optional<Tensor>& W,
                          const std::optional<Tensor>& b, Output stage) const {
  return attn::project(x, W, b, stage);
}

Tensor TensorOps::split_heads(Tensor x, std::size_t heads) const {
  return attn::split_heads(std::move(x), heads);
}

Tensor TensorOps::clipped(Tensor x) const {
  if (in_.options.clip_qkv == 0) return x;
  const double limit = in_.options.clip_qkv;
  Tensor limited = cast(x, DType::f64);
  for (double& value : limited.mutable_data<double>()) value = std::clamp(value, -limit, limit);
  return cast(limited, in_.compute);
}

Tensor TensorOps::qk_normalised(Tensor x, const std::optional<Tensor>& weight,
                                const std::optional<Tensor>& bias) const {
  if (in_.options.qk_norm == QkNorm::none) return x;
  return attn::qk_normalised(x, weight, bias, in_.options, in_.compute);
}

Tensor TensorOps::rotated_queries(Tensor queries, const std::optional<Tensor>& cos,
                                  const std::optional<Tensor>& sin) const {
  if (in_.options.rotary.kind == Rotary::Kind::none) return queries;
  const Angles all = rotary_angles(in_, in_.query_positions, cos, sin);
  return rotated(queries, {chosen_rows(all.cos), chosen_rows(all.sin)}, in_.options.rotary.kind,
                 in_.compute);
}

Tensor TensorOps::rotated_keys(Tensor keys, const std::optional<Tensor>& cos,
                               const std::optional<Tensor>& sin) const {
  if (in_.options.rotary.kind == Rotary::Kind::none) return keys;
  return rotated(keys, rotary_angles(in_, in_.key_positions, cos, sin), in_.options.rotary.kind,
                 in_.compute);
}

Tensor TensorOps::scaled_by_position(Tensor queries) const {
  if (in_.options.query_scale.factor == 0) return queries;
  const Tensor factors = query_factors(in_.options.query_scale, in_.query_positions);
  return times_by_position(queries, chosen_rows(factors), in_.compute);
}

Tensor TensorOps::append(const Tensor& before, const Tensor& behind) const {
  return append_rows(before, behind);
}

Tensor TensorOps::append_zero(const Tensor& x) const {
  Shape one = x.shape();
  one[2] = 1;
  return append_rows(x, Tensor(x.dtype(), one));
}

Tensor TensorOps::score(const Tensor& queries, const Tensor& keys,
                        const ScoreWeights<Tensor>& weights) const {
  return attn::score(queries, keys, weights, in_.options.score, in_.compute,
                     rounds_factors_to_bf16(in_));
}

Tensor TensorOps::scale(const Tensor& scores, const std::optional<Tensor>& head_scale) const {
  return scale_scores(scores, head_scale, in_);
}

std::pair<Tensor, VisibleKeys> TensorOps::mask(const Tensor& scaled,
                                               const Biases<Tensor>& biases) const {
  return mask_scores(scaled, biases, in_);
}

std::pair<Tensor, Tensor> TensorOps::normalise(const Tensor& masked, const VisibleKeys& visible,
                                               const std::optional<Tensor>& sinks) const {
  return attn::normalise(masked, visible, sinks, in_.options);
}

Tensor TensorOps::in_lse_base(const Tensor& logsumexp) const {
  if (in_.options.lse_base == std::numbers::e) return logsumexp;
  Tensor converted = cast(logsumexp, DType::f64);
  for (double& value : converted.mutable_data<double>()) value /= std::log(in_.options.lse_base);
  return cast(converted, logsumexp.dtype());
}

Tensor TensorOps::reported_logsumexp(const Tensor& natural) const {
  const Tensor converted = in_lse_base(natural);
  if (in_.options.lse_empty == EmptyLogsumexp::minus_infinity) return converted;
  Tensor reported = cast(converted, DType::f64);
  for (double& value : reported.mutable_data<double>())
    if (value == -std::numeric_limits<double>::infinity())
      value = std::numeric_limits<double>::infinity();
  return cast(reported, converted.dtype());
}

Tensor TensorOps::dropped(const Tensor& weights) const {
  const bool shared = in_[Input::dropout_mask]->shape()[2] == 1;  // by all queries
  const Tensor mask = shared ? *in_[Input::dropout_mask] : chosen_rows(*in_[Input::dropout_mask]);
  const Shape &shape = weights.shape(), &given = mask.shape();
  const double factor = 1 / (1 - *in_.options.dropout_p);
  const bool* const kept = mask.data<bool>().data();
  Tensor result = weights;
  visit(weights.dtype(), [&]<class T>(Type<T>) {
    T* out = result.mutable_data<T>().data();
    for (std::size_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
      const std::size_t query = row % shape[2], head = row / shape[2] % shape[1];
      const std::size_t item = row / shape[2] / shape[1];
      const std::size_t mask_row =
          (item % given[0] * given[1] + head % given[1]) * given[2] + query % given[2];
      for (std::size_t j = 0; j < shape[3]; ++j, ++out)
        *out = kept[mask_row * given[3] + j % given[3]]
                   ? static_cast<T>(static_cast<double>(*out) * factor)
                   : T{};
    }
  });
  return result;
}

Tensor TensorOps::mean_over_heads(const Tensor& weights) const {
  return attn::mean_over_heads(weights);
}

Tensor TensorOps::sum_over_queries(const Tensor& weights) const {
  return in_.sum_over_queries ? in_.sum_over_queries(weights) : attn::sum_over_queries(weights);
}

Tensor TensorOps::row_statistic(Output statistic, const Tensor& matrix) const {
  return reduce_rows(statistic_of(statistic), matrix, RowQueries(in_));
}

Tensor TensorOps::weighted_values(const Tensor& weights, const Tensor& values,
                                  const VisibleKeys& visible) const {
  if (rounds_factors_to_bf16(in_))
    return attn::weighted_values(rounded_to_bf16(weights), rounded_to_bf16(values), visible.keys);
  return attn::weighted_values(weights, values, visible.keys);
}

Tensor TensorOps::sigmoid(const Tensor& x) const {
  Tensor result = cast(x, DType::f64);
  for (double& value : result.mutable_data<double>()) value = 1 / (1 + std::exp(-value));
  return cast(result, in_.compute);
}

Tensor TensorOps::gated(const Tensor& context, const Tensor& gates) const {
  Tensor product = cast(context, DType::f64);
  const Tensor wide_gates = cast(gates, DType::f64);
  const auto factors = wide_gates.data<double>();
  const auto out = product.mutable_data<double>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= factors[i];
  return cast(product, in_.compute);
}

Tensor TensorOps::divided(const Tensor& x, double divisor) const {
  Tensor quotient = cast(x, DType::f64);
  for (double& value : quotient.mutable_data<double>()) value /= divisor;
  return cast(quotient, in_.compute);
}

Tensor TensorOps::join_heads(const Tensor& head_context) const {
  return side_by_side(head_context);
}

Tensor TensorOps::swap_batch_and_heads(const Tensor& x) const {
  return attn::swap_batch_and_heads(x);
}

}  // namespace attn
