// The operations of the formula on values and error bounds (bounds/expected_error.h explains the
// letters).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attn/attention/projection.h"
#include "attn/attention/qk_norm.h"
#include "attn/attention/rotary.h"
#include "attn/attention/score.h"
#include "attn/attention/tensor_ops.h"
#include "attn/base/error.h"
#include "attn/bounds/bounds.h"
#include "attn/bounds/expected_error.h"
#include "attn/bounds/norm_error.h"
#include "attn/problem/inputs.h"
#include "attn/problem/mask.h"
#include "attn/tensor/rearrange.h"

namespace attn {

class ErrorOps {
 public:
  using Value = Bounded;
  using Visible = VisibleKeys;

  /// `known` may be nullptr. `keys`: how many a row sums over, if not inputs.S.
  ErrorOps(const Inputs& inputs, const Precision& precision, InputErrors* known = nullptr,
           std::optional<std::size_t> keys = {})
      : in_(inputs),
        exact_(inputs),
        r_(precision.result),
        f_(precision.factor),
        s_(precision.sum),
        of_weight_(std::max(precision.factor, precision.weight)),
        least_weight_(std::max(precision.least, precision.least_weight)),
        precision_(precision),
        known_(known),
        keys_(keys.value_or(inputs.S)) {}

  Bounded evaluated(Output, Bounded value) const { return value; }

  Bounded stored(const Bounded& x) const {
    return x.is_stored ? x : Bounded{x.value, rounded(x.error, x.value), true};
  }

  /// The error of a bias is one number, that of its first inexact element: mask() depends only on
  /// whether it is 0. Errors: data, if an element overflows the stored dtype.
  Bounded given(Input input) const {
    const Tensor& x = *in_[input];
    const auto compute = [&] {
      const bool is_bias =
          std::find(kBiasInputs.begin(), kBiasInputs.end(), input) != kBiasInputs.end();
      return is_bias ? first_distance_when_stored(x) : distance_when_stored(x);
    };
    return {x, known_ != nullptr ? known_->of(input, compute) : compute(), true};
  }

  Bounded chosen_rows(const Bounded& x) const {
    return {exact_.chosen_rows(x.value), exact_.chosen_rows(x.error), x.is_stored};
  }

  [[noreturn]] Bounded positions() const { throw_unbounded(); }

  /// Embeddings times their scale plus positions.
  Bounded add_positions(const Bounded& embeddings) const {
    const Position& position = in_.options.position;
    if (position.kind == Position::Kind::none && position.embedding_scale == 1 &&
        !position.embedding_scale_sqrt)
      return embeddings;
    const Tensor inputs = exact_.add_positions(embeddings.value);
    const double scale = position.embedding_scale_sqrt
                             ? std::sqrt(static_cast<double>(embeddings.value.shape()[2]))
                             : std::abs(position.embedding_scale);
    // The error of an angle grows with its position.
    const auto last = static_cast<double>(in_.L + in_.P) + std::abs(double(position.first));
    const double angle = position.kind == Position::Kind::none ? 0 : (last + 4) * s_;
    const Tensor error =
        bounds::each([&](double e, double x) { return e * scale + 2 * s_ * x + angle; },
                     embeddings.error, bounds::magnitude(inputs));
    return {inputs, rounded(error, inputs), true};
  }

  Bounded input_normalised(const Bounded& x, const std::optional<Bounded>& weight,
                           const std::optional<Bounded>& bias) const {
    if (in_.options.input_norm == QkNorm::none) return x;
    Inputs norm = in_;
    norm.options = with_input_norm(in_.options);
    const Shape& shape = x.value.shape();
    const Shape one_head{shape[0], 1, shape[1], shape[2]};
    const Bounded normalised =
        ErrorOps(norm, precision_)
            .qk_normalised({x.value.reshaped(one_head), x.error.reshaped(one_head), x.is_stored},
                           weight, bias);
    return {normalised.value.reshaped(shape), normalised.error.reshaped(shape), true};
  }

  Bounded project(const Bounded& x, const std::optional<Bounded>& W,
                  const std::optional<Bounded>& b, Output stage) const {
    if (!W && !b) return x;
    const Tensor y = exact_.project(x.value, value_of(W), value_of(b), stage);
    Tensor total = x.error;
    if (W) {
      const Tensor magnitudes = bounds::magnitude(x.value), w = bounds::magnitude(W->value);
      total = bounds::plus(
          bounds::plus(bounds::product(x.error, w), bounds::product(magnitudes, W->error)),
          bounds::times(bounds::product(magnitudes, w), sum_of_products(x.value.shape().back())));
    }
    if (b) {  // added to any of the partial sums of the product
      const Tensor size = bounds::magnitude(b->value);
      const auto e = b->error.data<double>(), bias = size.data<double>();
      const double of_sums = W ? bounds::growth(x.value.shape().back()) * s_ : 0;
      const auto out = total.mutable_data<double>();
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] += e[i % e.size()] + of_sums * bias[i % e.size()];
    }
    return {y, rounded(bounds::plus(total, bounds::times(bounds::magnitude(y), s_)), y), true};
  }

  Bounded split_heads(const Bounded& x, std::size_t heads) const {
    return {exact_.split_heads(x.value, heads), exact_.split_heads(x.error, heads), x.is_stored};
  }

  Bounded clipped(const Bounded& x) const {
    if (in_.options.clip_qkv == 0) return x;
    const Tensor limited = exact_.clipped(x.value);
    return {limited, rounded(x.error, limited), true};
  }

  Bounded qk_normalised(const Bounded& x, const std::optional<Bounded>& weight,
                        const std::optional<Bounded>& bias) const {
    if (in_.options.qk_norm == QkNorm::none) return x;
    const Tensor normalised = exact_.qk_normalised(x.value, value_of(weight), value_of(bias));
    auto [unweighted, error] = without_weight(x);
    if (weight)
      error = bounds::each(
          [this](double e, double u, double w, double of_w) { return e * w + u * (of_w + r_ * w); },
          std::move(error), bounds::magnitude(unweighted),
          norm_terms(bounds::magnitude(weight->value), x.value),
          norm_terms(weight->error, x.value));
    if (bias) error = bounds::plus(std::move(error), norm_terms(bias->error, x.value));
    error = bounds::plus(std::move(error), bounds::times(bounds::magnitude(normalised), s_));
    return {normalised, rounded(std::move(error), normalised), true};
  }

  Bounded rotated_queries(const Bounded& x, const std::optional<Bounded>& cos,
                          const std::optional<Bounded>& sin) const {
    if (in_.options.rotary.kind == Rotary::Kind::none) return x;
    const auto [angles, errors] = angles_at(in_.query_positions, cos, sin);
    return rotated(x, exact_.rotated_queries(x.value, value_of(cos), value_of(sin)),
                   {exact_.chosen_rows(angles.cos), exact_.chosen_rows(angles.sin)},
                   {exact_.chosen_rows(errors.cos), exact_.chosen_rows(errors.sin)});
  }
  Bounded rotated_keys(const Bounded& x, const std::optional<Bounded>& cos,
                       const std::optional<Bounded>& sin) const {
    if (in_.options.rotary.kind == Rotary::Kind::none) return x;
    const auto [angles, errors] = angles_at(in_.key_positions, cos, sin);
    return rotated(x, exact_.rotated_keys(x.value, value_of(cos), value_of(sin)), angles, errors);
  }

  Bounded scaled_by_position(const Bounded& queries) const {
    if (in_.options.query_scale.factor == 0) return queries;
    const Tensor scaled = exact_.scaled_by_position(queries.value);
    const Tensor error = bounds::plus(bounds::magnitude(exact_.scaled_by_position(queries.error)),
                                      bounds::times(bounds::magnitude(scaled), 4 * s_));
    return {scaled, rounded(error, scaled), true};
  }

  Bounded append(const Bounded& before, const Bounded& behind) const {
    return {exact_.append(before.value, behind.value), append_rows(before.error, behind.error),
            true};
  }
  Bounded append_zero(const Bounded& x) const {
    return {exact_.append_zero(x.value), exact_.append_zero(x.error), true};
  }

  /// Score::dot only, which has no weights.
  Bounded score(const Bounded& queries, const Bounded& keys, const ScoreWeights<Bounded>&) const {
    if (in_.options.bf16_products) return score_of_bf16(as_bf16(queries), as_bf16(keys));
    // Kernels of bfloat16 may count subnormal factors as 0, too.
    if (precision_.stored == DType::bf16 && (has_subnormal(queries) || has_subnormal(keys)))
      return score_of_bf16(with_lost_subnormals(queries), with_lost_subnormals(keys));
    const Tensor q = bounds::magnitude(queries.value);
    const Bounded::Sizes k = sizes_of(keys);
    const Tensor of_queries = bounds::each(
        [c = sum_of_products(in_.D)](double e, double x) { return e + c * x; }, queries.error, q);
    Tensor total = bounds::product(of_queries, k.magnitudes, Second::transposed);
    if (!k.is_exact)
      total = bounds::plus(std::move(total), bounds::product(q, keys.error, Second::transposed));
    return {exact_.score(queries.value, keys.value, {}), std::move(total)};
  }

  Bounded scale(const Bounded& scores, const std::optional<Bounded>& head_scale) const {
    const double scale = std::abs(in_.scale.factor());
    const double own = in_.options.softcap > 0 ? 6 * s_ : 2 * s_;
    const Tensor scaled = exact_.scale(scores.value, value_of(head_scale));
    const auto of_score = [this, scale](double e, double s) {
      return (e + 2 * s_ * bounds::finite(std::abs(s))) * scale;
    };
    const auto with_own = [own](double e, double x) {
      return e + own * bounds::finite(std::abs(x));
    };
    if (!head_scale)
      return {scaled, bounds::each(
                          [&](double e, double s, double x) { return with_own(of_score(e, s), x); },
                          scores.error, bounds::wide(scores.value), bounds::wide(scaled))};
    const Tensor error =
        times_by_head(bounds::each(of_score, scores.error, bounds::wide(scores.value)),
                      bounds::magnitude(head_scale->value));
    const Tensor of_factor =
        times_by_head(bounds::times(bounds::magnitude(scores.value), scale), head_scale->error);
    return {scaled, bounds::each(with_own, bounds::plus(error, of_factor), bounds::wide(scaled))};
  }

  /// Hidden scores are exact. The score and its biases may be added in any order: all sums but the
  /// last are at most the sum of the magnitudes, even if biases cancel.
  std::pair<Bounded, VisibleKeys> mask(const Bounded& scaled, Biases<Bounded> biases) const {
    Biases<Tensor> exact_biases;
    bool are_rounded = false;
    for (auto& [input, bias] : biases) {
      are_rounded = are_rounded || is_rounded(bias);
      exact_biases.push_back({input, std::move(bias.value)});
    }
    biases.clear();  // their errors take memory
    const double own = in_.options.softcap > 0 ? 5 * s_ : s_;
    auto [masked, visible] = exact_.mask(scaled.value, exact_biases);
    if (exact_biases.empty() && !in_.bias_rule) {
      Tensor error = bounds::each(
          [own](double e, double x) { return std::isfinite(x) ? e + own * std::abs(x) : 0.0; },
          scaled.error, masked);
      return {{std::move(masked), std::move(error)}, std::move(visible)};
    }
    const auto [sizes, count] = bias_magnitudes(exact_biases, in_);
    const double of_bias = 2 * s_ + (are_rounded ? r_ : 0);
    const double of_sums = count > 1 ? static_cast<double>(count - 1) * s_ : 0;
    Tensor error = bounds::each(
        [&](double e, double before, double bias, double x) {
          if (!std::isfinite(x)) return 0.0;
          return e + of_bias * bias + of_sums * (std::abs(before) + bias) + own * std::abs(x);
        },
        scaled.error, bounds::wide(scaled.value), sizes, masked);
    return {{std::move(masked), std::move(error)}, std::move(visible)};
  }

  /// The value has errors of its own if softmax.precision rounds it.
  std::pair<Bounded, Bounded> normalise(const Bounded& masked, const VisibleKeys& visible,
                                        const std::optional<Bounded>& given_sinks) const {
    const SoftmaxErrors own = softmax_errors();
    const double s = own.of_functions;
    const auto [weights, logsumexp] =
        exact_.normalise(masked.value, visible, value_of(given_sinks));
    Tensor of_weights = masked.error;  // replaced by the errors of the weights, row by row
    Tensor of_logsumexp(DType::f64, logsumexp.shape());
    const auto out = of_weights.mutable_data<double>();
    const auto sums = of_logsumexp.mutable_data<double>();
    const double roundings = bounds::growth(keys_ + (given_sinks ? 1 : 0)) * s;
    const double unit = 1 / std::abs(in_.options.temperature);
    const Tensor sinks =
        given_sinks ? bounds::magnitude(given_sinks->value) : Tensor(DType::f64, {in_.H});
    const Tensor of_sinks = given_sinks ? given_sinks->error : sinks;
    std::vector<double> n(in_.S);
    for (std::size_t row = 0; row < sums.size(); ++row) {
      const std::size_t head = row / in_.rows.size() % in_.H;
      const double* const scores = masked.value.data<double>().data() + row * in_.S;
      const double* const w = weights.data<double>().data() + row * in_.S;
      double* const errors = out.data() + row * in_.S;
      const double sink = sinks.data<double>()[head];
      double highest = -std::numeric_limits<double>::infinity(), shared = 0, seen = 0;
      for (std::size_t j = 0; j < in_.S; ++j) {
        const double x = scores[j] / in_.options.temperature;
        highest = x > highest ? x : highest;
      }
      const double largest = std::max(sink, bounds::finite(std::abs(highest)));
      for (std::size_t j = 0; j < in_.S; ++j) {
        const double argument = bounds::finite(std::abs(scores[j])) * unit + largest;
        const double weight = bounds::finite(w[j]);
        const double of_score = own.unit * bounds::finite(std::abs(scores[j])) * unit + own.least;
        n[j] = errors[j] * unit + of_score + (2 * argument + 4) * s;
        shared += weight * n[j];
        seen += weight;
      }
      if (given_sinks && seen < 1)
        shared += (1 - seen) * (of_sinks.data<double>()[head] + (2 * (sink + largest) + 4) * s);
      const double of_row = shared + roundings + 2 * s;
      const double log = logsumexp.data<double>()[row];
      for (std::size_t j = 0; j < in_.S; ++j) {
        const double weight = bounds::finite(w[j]);
        const double error = error_of_weight(weight, scores[j] / in_.options.temperature - log,
                                             n[j] + of_row, roundings + 4 * s);
        errors[j] = error + own.unit * (weight + error) + (error > 0 ? own.least : 0);
      }
      const double lse = bounds::finite(std::abs(log));
      sums[row] = shared + roundings + 4 * s + 2 * s * lse;
    }
    return {{weights, std::move(of_weights)}, {logsumexp, std::move(of_logsumexp)}};
  }

  Bounded reported_logsumexp(const Bounded& natural) const {
    const Tensor reported = exact_.reported_logsumexp(natural.value);
    if (in_.options.lse_base == std::numbers::e) return {reported, natural.error};
    const double factor = 1 / std::log(in_.options.lse_base);
    return {reported, bounds::plus(bounds::times(natural.error, factor),
                                   bounds::times(bounds::magnitude(reported), 2 * s_))};
  }

  /// The factor 1 / (1 - p) has two roundings, the product a third.
  Bounded dropped(const Bounded& weights) const {
    const Tensor result = exact_.dropped(weights.value);
    const Tensor of_weights = exact_.dropped(weights.error);
    return {result, bounds::plus(of_weights, bounds::times(bounds::magnitude(result), 3 * s_))};
  }

  [[noreturn]] Bounded mean_over_heads(const Bounded&) const { throw_unbounded(); }
  [[noreturn]] Bounded sum_over_queries(const Bounded&) const { throw_unbounded(); }
  Bounded row_statistic(Output statistic, const Bounded& matrix) const {
    if (statistic != Output::entropy) throw_unbounded();
    return entropy(matrix);
  }

  /// The derivative of w log w is at most 1 + |log w|. A weight near 0 has an error below the
  /// smallest positive number.
  Bounded entropy(const Bounded& weights) const {
    const Tensor entropies = exact_.row_statistic(Output::entropy, weights.value);
    Tensor errors(DType::f64, entropies.shape());
    const auto w = weights.value.data<double>(), e = weights.error.data<double>();
    const double roundings = (bounds::growth(keys_) + 3) * s_, least = precision_.least;
    std::size_t i = 0;
    for (double& error : errors.mutable_data<double>())
      for (std::size_t j = 0; j < in_.S; ++j, ++i) {
        const double log = std::abs(std::log(std::max(bounds::finite(w[i]), least)));
        error += (e[i] + least) * (1 + log) + roundings * bounds::finite(w[i]) * log;
      }
    return {entropies, errors};
  }

  Bounded weighted_values(const Bounded& weights, const Bounded& values,
                          const VisibleKeys& visible) const {
    Tensor context = exact_.weighted_values(weights.value, values.value, visible);
    if (!in_.options.bf16_products)
      return {context, weighted_sum_error(weights, values, keys_, context)};
    Bounded rounded_weights = as_bf16(weights);
    const Tensor w = bounds::magnitude(weights.value);
    if (of_weight_ > kBf16Unit)
      rounded_weights.error =
          bounds::each([this](double e, double x) { return e + of_weight_ * x; },
                       std::move(rounded_weights.error), w);
    Tensor error = bf16_product_error(rounded_weights, as_bf16(values), Second::plain, keys_);
    add_subnormal_weights(w, sizes_of(values), error);
    return {std::move(context), std::move(error)};
  }

  /// The derivative of the sigmoid is at most 1/4.
  Bounded sigmoid(const Bounded& x) const {
    const Tensor result = exact_.sigmoid(x.value);
    return {result, bounds::plus(bounds::times(x.error, 0.25), bounds::times(result, 4 * s_))};
  }

  Bounded gated(const Bounded& context, const Bounded& gates) const {
    const Tensor result = exact_.gated(context.value, gates.value);
    Tensor error =
        bounds::each([](double e, double f, double x, double g) { return e * (g + f) + f * x; },
                     context.error, gates.error, bounds::magnitude(context.value), gates.value);
    return {result, bounds::plus(std::move(error), bounds::times(bounds::magnitude(result), s_))};
  }

  Bounded divided(const Bounded& x, double divisor) const {
    const Tensor result = exact_.divided(x.value, divisor);
    return {result, bounds::plus(bounds::times(x.error, 1 / std::abs(divisor)),
                                 bounds::times(bounds::magnitude(result), 2 * s_))};
  }

  /// The context is rounded to the stored dtype before it is projected.
  Bounded join_heads(const Bounded& x) const {
    return {exact_.join_heads(x.value), exact_.join_heads(stored(x).error), true};
  }

  /// The same for the contexts that W_UV multiplies.
  Bounded swap_batch_and_heads(const Bounded& x) const {
    return {exact_.swap_batch_and_heads(x.value), exact_.swap_batch_and_heads(stored(x).error),
            true};
  }

  /// The error of x after rounding to the stored dtype. What is exactly 0 stays 0.
  Tensor rounded(Tensor error, const Tensor& x) const {
    return bounds::each(
        [&](double e, double v) {
          return e == 0 && v == 0 ? 0 : e + r_ * bounds::finite(std::abs(v)) + precision_.least;
        },
        std::move(error), bounds::wide(x));
  }

  /// The error of a result, so that a difference from 0 is a finite multiple of it.
  Tensor of_result(Tensor error, const Tensor& x) const {
    return bounds::each(
        [&](double e, double v) { return v == 0 ? std::max(e, precision_.least) : e; },
        std::move(error), bounds::wide(x));
  }

  /// c(n) of bounds/expected_error.h.
  double sum_of_products(std::size_t n) const {
    return bounds::growth(n) * s_ + (f_ > r_ ? 2 * f_ : 0);
  }

  /// The angles of all tokens and the errors of their stored cosines and sines.
  std::pair<Angles, Angles> angles_at(const Tensor& positions, const std::optional<Bounded>& cos,
                                      const std::optional<Bounded>& sin) const {
    Angles angles = rotary_angles(in_, positions, value_of(cos), value_of(sin));
    if (cos) return {angles, rotary_angles(in_, positions, cos->error, sin->error)};
    const Tensor error = rotary_angle_errors(in_, positions, s_);
    return {angles, {rounded(error, angles.cos), rounded(error, angles.sin)}};
  }

  /// A kernel may also store the four products of each pair.
  Bounded rotated(const Bounded& x, Tensor turned, const Angles& angles,
                  const Angles& errors) const {
    const Tensor magnitudes = bounds::magnitude(x.value);
    const auto before = magnitudes.data<double>(), e = x.error.data<double>();
    const auto of_product = [&](std::size_t i, double factor, double of_factor) {
      if (e[i] == 0 && before[i] == 0) return 0.0;
      return e[i] * std::abs(factor) + before[i] * (of_factor + r_ * std::abs(factor)) +
             precision_.least;
    };
    const auto cos = angles.cos.data<double>(), of_cos = errors.cos.data<double>();
    const auto sin = angles.sin.data<double>(), of_sin = errors.sin.data<double>();
    Tensor total = x.error;
    const auto out = total.mutable_data<double>();
    each_rotated_pair(
        turned.shape(), angles, in_.options.rotary.kind,
        [&](std::size_t i, std::size_t j, std::size_t k) {
          out[i] = of_product(i, cos[k], of_cos[k]) + of_product(j, sin[k], of_sin[k]);
          out[j] = of_product(i, sin[k], of_sin[k]) + of_product(j, cos[k], of_cos[k]);
        });
    Tensor error = rounded(std::move(total), turned);
    return {std::move(turned), std::move(error), true};
  }

  /// The error of the matrix product of weights (B, H, m, n) that the computation itself produces,
  /// and therefore rounds as factors, and `values`, stored before, as part of a sum of `count`
  /// products. `product`: its value.
  Tensor weighted_sum_error(const Bounded& weights, const Bounded& values, std::size_t count,
                            const Tensor& product) const {
    const Tensor w = bounds::magnitude(weights.value);
    const Bounded::Sizes v = sizes_of(values);
    const double of_sum = sum_of_products(count);
    const bool is_coarse =
        of_weight_ > s_;  // otherwise the factors' roundings are few beside those of sums
    const Tensor of_weights = bounds::each(
        [c = of_sum + (is_coarse ? 0 : of_weight_)](double e, double x) { return e + c * x; },
        weights.error, w);
    Tensor total = bounds::product(of_weights, v.magnitudes);
    const auto square = [](double x) { return x * x; };
    if (is_coarse)
      total = with_rounded_weights(
          std::move(total), bounds::product(w, v.magnitudes),
          bounds::product(bounds::each(square, w), bounds::each(square, v.magnitudes)), product);
    add_subnormal_weights(w, v, total);
    return v.is_exact ? total : bounds::plus(std::move(total), bounds::product(w, values.error));
  }

  /// Adds the roundings of coarse weights to the errors of their products with values, of which
  /// `terms` and `squares` are the sums of magnitudes and of squares. What the roundings have in
  /// common, as of equal weights, changes the product by as much; the rest has both signs.
  Tensor with_rounded_weights(Tensor errors, const Tensor& terms, const Tensor& squares,
                              const Tensor& product) const {
    return bounds::each(
        [this](double e, double t, double t2, double x) {
          const double of_all = bounds::finite(std::abs(x)) + bounds::kSpread * std::sqrt(t2);
          return e + of_weight_ * std::min(t, of_all);
        },
        std::move(errors), terms, squares, bounds::wide(product));
  }

  /// What the same error consists of if the products are summed part by part: sums that add up.
  struct WeightedSum {
    Tensor errors;
    std::optional<Tensor> terms, squares;  ///< of weights and values, if weights are coarse factors
    std::optional<Tensor> sizes;  ///< squares of the values that have a weight, if they matter
  };
  WeightedSum weighted_sum(const Bounded& weights, const Bounded& values, std::size_t count) const {
    const Tensor w = bounds::magnitude(weights.value);
    const Bounded::Sizes v = sizes_of(values);
    const auto square = [](double x) { return x * x; };
    const double c = sum_of_products(count) + (of_weight_ > s_ ? 0 : of_weight_);
    WeightedSum sum;
    sum.errors = bounds::product(
        bounds::each([c](double e, double x) { return e + c * x; }, weights.error, w),
        v.magnitudes);
    if (!v.is_exact)
      sum.errors = bounds::plus(std::move(sum.errors), bounds::product(w, values.error));
    if (of_weight_ <= s_ && !has_coarse_least()) return sum;
    const Tensor squares = bounds::each(square, v.magnitudes);
    if (of_weight_ > s_) {
      sum.terms = bounds::product(w, v.magnitudes);
      sum.squares = bounds::product(bounds::each(square, w), squares);
    }
    if (has_coarse_least())
      sum.sizes =
          bounds::product(bounds::each([](double x) { return x > 0 ? 1.0 : 0.0; }, w), squares);
    return sum;
  }
  /// `product`: the sum itself; `norms`: of the columns of all values.
  Tensor error_of(WeightedSum sum, const Tensor& product, const std::vector<double>& norms) const {
    Tensor total = std::move(sum.errors);
    if (sum.terms)
      total = with_rounded_weights(std::move(total), *sum.terms, *sum.squares, product);
    const double unit = bounds::kSpread * least_weight_;
    if (sum.sizes)
      return bounds::each([unit](double e, double s2) { return e + unit * std::sqrt(s2); },
                          std::move(total), *sum.sizes);
    std::size_t i = 0;
    for (double& error : total.mutable_data<double>()) {
      if (error != 0) error += unit * norms[i % norms.size()];
      ++i;
    }
    return total;
  }

  /// Adds 4 tiny |V|_2 to the errors `total`, (..., rows, Dv), for the norm over the keys that have
  /// a weight. That over all keys needs no product, and serves if even it is negligible.
  void add_subnormal_weights(const Tensor& w, const Bounded::Sizes& v, Tensor& total) const {
    constexpr double kNegligible = 0x1p-30;
    const double unit = bounds::kSpread * least_weight_;
    if (v.norms.empty() || total.size() == 0) return;
    const std::size_t columns = total.shape().back();
    const auto errors = total.mutable_data<double>();
    const std::size_t of_matrix = errors.size() / (v.norms.size() / columns);
    const auto norm_of = [&](std::size_t i) {
      return unit * v.norms[i / of_matrix * columns + i % columns];
    };
    bool is_negligible = true;
    for (std::size_t i = 0; i < errors.size(); ++i)
      is_negligible &= errors[i] == 0 || norm_of(i) <= kNegligible * errors[i];
    if (is_negligible) {
      for (std::size_t i = 0; i < errors.size(); ++i)
        if (errors[i] != 0) errors[i] += norm_of(i);
      return;
    }
    const Tensor flags = bounds::each([](double x) { return x > 0 ? 1.0 : 0.0; }, w);
    const Tensor squares = bounds::each([](double x) { return x * x; }, v.magnitudes);
    total = bounds::each([unit](double e, double s2) { return e + unit * std::sqrt(s2); },
                         std::move(total), bounds::product(flags, squares));
  }

  /// The error of exp(log), w, where `of_log` is that of the logarithm: w and its computed value
  /// are at most 1 but for roundings. w may be 0 because it is too small for a double.
  static double error_of_weight(double w, double log, double of_log, double roundings) {
    if (w == 0) return std::isfinite(log) ? std::min(std::exp(log + of_log), 1 + roundings) : 0;
    return std::min(w * bounds::expm1(of_log), std::max(w, 1 - w) + roundings);
  }

  const Precision& precision() const { return precision_; }

 private:
  /// What softmax.precision adds to the errors of scores and of weights, relative and near 0, once
  /// for the result and once for the value; and s of the softmax, likewise.
  struct SoftmaxErrors {
    double unit = 0, least = 0, of_functions = 0;
  };
  SoftmaxErrors softmax_errors() const {
    const SoftmaxPrecision chosen = in_.options.softmax_precision;
    if (chosen == SoftmaxPrecision::automatic) return {.of_functions = s_};
    const Precision rounded = *precision_named(chosen == SoftmaxPrecision::f16    ? "f16"
                                               : chosen == SoftmaxPrecision::bf16 ? "bf16"
                                               : chosen == SoftmaxPrecision::f32  ? "f32"
                                                                                  : "f64");
    return {2 * rounded.result, 2 * rounded.least, s_ + rounded.sum};
  }

  /// Whether numbers that are stored as 0 may matter.
  bool has_coarse_least() const { return least_weight_ > 0x1p-60; }

  [[noreturn]] static void throw_unbounded() {
    throw Error(ErrorKind::internal, "no error bound is known for this operation");
  }

  static constexpr double kLeastNormal = 0x1p-126;  ///< of float32 and bfloat16
  static constexpr double kBf16Unit = 0x1p-8;       ///< unit roundoff
  static constexpr double kBf16End = 0x1.ffp127;    ///< rounds to infinity

  static bool has_subnormal(const Bounded& x) {
    const Tensor values = bounds::wide(x.value);
    return std::any_of(values.data<double>().begin(), values.data<double>().end(),
                       [](double v) { return v != 0 && std::abs(v) < kLeastNormal; });
  }

  /// The error of v, which has error e, if a subnormal number may count as 0.
  static double error_of_lost(double e, double v) {
    const double size = std::abs(v);
    return size < kLeastNormal ? e + std::min(size + e, kLeastNormal) : e;
  }
  static Bounded with_lost_subnormals(const Bounded& x) {
    return {x.value, bounds::each(error_of_lost, x.error, bounds::wide(x.value)), x.is_stored};
  }

  /// A factor after rounding to bfloat16. What is known exactly is rounded by a known
  /// amount, and what is stored in bfloat16 not at all. Errors: data, if x overflows it.
  Bounded as_bf16(const Bounded& x) const {
    const bool is_kept = precision_.stored == DType::bf16 && x.is_stored;
    const auto error = [is_kept](double e, double v) {
      const double size = std::abs(v);
      if (size >= kBf16End && std::isfinite(v))
        fail_data("compute: bf16 cannot represent " + std::to_string(v));
      if (size < kLeastNormal) return error_of_lost(e, v);
      if (e == 0) return bounds::finite(std::abs(v - static_cast<double>(BFloat16(v))));
      return is_kept ? e : e + kBf16Unit * (bounds::finite(size) + e) + kLeastNormal;
    };
    return {x.value, bounds::each(error, x.error, bounds::wide(x.value)), x.is_stored};
  }

  /// The error of the product of factors in bfloat16, sums of `count` terms. The product of two
  /// roundings counts beside those of sums. Roundings may have one sign: equal weights are rounded
  /// alike. A product or sum below the least normal number may become 0.
  Tensor bf16_product_error(const Bounded& x, const Bounded& y, Second second,
                            std::size_t count) const {
    const Tensor a = bounds::magnitude(x.value), b = bounds::magnitude(y.value);
    const Tensor of_x = bounds::each(
        [c = sum_of_products(count)](double e, double size) { return e + c * size; }, x.error, a);
    Tensor total = bounds::product(of_x, bounds::plus(b, y.error), second);
    total = bounds::plus(std::move(total), bounds::product(a, y.error, second));
    const double least = static_cast<double>(count) * kLeastNormal;
    for (double& e : total.mutable_data<double>())
      if (e != 0) e += least;
    return total;
  }

  Bounded score_of_bf16(const Bounded& queries, const Bounded& keys) const {
    return {exact_.score(queries.value, keys.value, {}),
            bf16_product_error(queries, keys, Second::transposed, in_.D)};
  }

  /// |x - x rounded to the stored dtype|. Errors: data, if x overflows it.
  double distance_when_stored(double x) const {
    const DType stored = precision_.stored;
    const double kept = stored == DType::f32    ? static_cast<double>(static_cast<float>(x))
                        : stored == DType::f16  ? static_cast<double>(Half(x))
                        : stored == DType::bf16 ? static_cast<double>(BFloat16(x))
                                                : x;
    if (std::isfinite(x) && !std::isfinite(kept))
      fail_data("inputs: " + std::string(name_of(stored)) + " cannot represent " +
                std::to_string(x));
    return bounds::finite(std::abs(x - kept));
  }

  Tensor distance_when_stored(const Tensor& x) const {
    const Tensor exact = bounds::wide(x);
    // Zeros that nobody writes take no memory.
    if (are_kept_when_stored(exact.data<double>())) return Tensor(DType::f64, exact.shape());
    return bounds::each([&](double v) { return distance_when_stored(v); }, exact);
  }

  /// (1), the distance of the first element that rounding changes, or 0.
  Tensor first_distance_when_stored(const Tensor& x) const {
    const Tensor exact = bounds::wide(x);
    double first = 0, largest = 0;
    if (!are_kept_when_stored(exact.data<double>())) {
      for (const double v : exact.data<double>()) {
        if (first == 0) first = distance_when_stored(v);
        if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
      }
      distance_when_stored(largest);  // the element that overflows if any does
    }
    return Tensor::of<double>({1}, {first});
  }

  /// Whether rounding to the stored dtype changes no element. A loop that compilers vectorize, with
  /// Veltkamp's splitting: x rounded to p bits is c - (c - x) for c = (2^(53 - p) + 1) x.
  bool are_kept_when_stored(std::span<const double> elements) const {
    const DType stored = precision_.stored;
    if (stored == DType::f64) return true;
    const bool is_half = stored == DType::f16;
    const int dropped = 52 - (is_half ? 10 : stored == DType::bf16 ? 7 : 23);  // bits
    const double least_normal = is_half ? 0x1p-14 : 0x1p-126, end = is_half ? 0x1p16 : 0x1p128;
    const double splitter = std::ldexp(1, dropped) + 1;
    const double coarse = std::ldexp(least_normal, dropped);  // its last bit is that of subnormals
    std::uint64_t changes = 0;
    for (const double v : elements) {
      const double size = std::abs(v) == std::numeric_limits<double>::infinity() ? 0 : std::abs(v);
      const double c = splitter * size;
      const double normal = c - (c - size), subnormal = size + coarse - coarse;
      const double kept = size < least_normal ? subnormal : size < end ? normal : 0;
      changes |= std::bit_cast<std::uint64_t>(kept - size);
    }
    return changes == 0;
  }

  /// x (B, heads, N, D) normalised without weight and bias, and its error.
  std::pair<Tensor, Tensor> without_weight(const Bounded& x) const {
    const bool all = in_.options.qk_norm_axis == QkNormAxis::all;
    const std::size_t heads = x.value.shape()[1];
    Tensor columns = all ? exact_.join_heads(bounds::wide(x.value)) : bounds::wide(x.value);
    Tensor errors = all ? exact_.join_heads(x.error) : x.error;
    const std::size_t count = columns.shape().back();
    const auto values = columns.mutable_data<double>(), bounds = errors.mutable_data<double>();
    for (std::size_t from = 0; from < values.size(); from += count)
      normalise_columns(values.subspan(from, count), bounds.subspan(from, count), in_.options, s_);
    if (!all) return {columns, errors};
    return {exact_.split_heads(columns, heads), exact_.split_heads(errors, heads)};
  }

  /// The terms of a norm, (heads or 1, D), for each element of x (B, heads, N, D).
  static Tensor norm_terms(const Tensor& terms, const Tensor& x) {
    Tensor repeated(DType::f64, x.shape());
    const std::size_t heads = x.shape()[1], N = x.shape()[2], D = x.shape()[3];
    const auto from = terms.data<double>();
    const auto out = repeated.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = from[(i / (N * D) % heads * D + i % D) % from.size()];
    return repeated;
  }

  static std::optional<Tensor> value_of(const std::optional<Bounded>& x) {
    return x ? std::optional(x->value) : std::nullopt;
  }

  static bool is_rounded(const Bounded& x) {
    const auto errors = x.error.data<double>();
    return is_float(x.value.dtype()) &&
           std::any_of(errors.begin(), errors.end(), [](double e) { return e > 0; });
  }

  const Inputs& in_;
  const TensorOps exact_;
  const double r_, f_, s_, of_weight_, least_weight_;
  const Precision& precision_;
  InputErrors* const known_;
  const std::size_t keys_;
};

}  // namespace attn
