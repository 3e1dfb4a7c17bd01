#include "attn/core/gradient_error.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "attn/core/derivatives.h"
#include "attn/core/error_ops.h"
#include "attn/core/formula.h"
#include "attn/core/fused_gradients.h"
#include "attn/core/layout.h"
#include "attn/core/norm_error.h"
#include "attn/core/qk_norm.h"
#include "attn/core/tape.h"

namespace attn {
namespace {

/// A tensor of the formula with its bound and, if the loss may depend on the wanted input through
/// it, a node.
struct TracedBound {
  Bounded bounded;
  std::optional<std::size_t> node = {};
};

/// The operations of the formula on values and error bounds, and on bounds of their derivatives.
class GradErrorOps {
 public:
  using Value = TracedBound;
  using Visible = VisibleKeys;
  using Operand = std::optional<TracedBound>;

  /// Both must outlive this object. With no input, only delta is computed.
  GradErrorOps(const Inputs& inputs, const Precision& precision, std::optional<Input> wanted)
      : in_(inputs),
        exact_(inputs),
        errors_(inputs, precision),
        s_(precision.sum),
        wanted_(wanted) {}

  void seed(const TracedBound& value, Input seed) {
    tape_.pass(value, [&] { return errors_.given(seed); });
  }
  /// The loss may depend on other results of attended() than the context.
  void seed_zero(const TracedBound& context) {
    const Tensor zero(DType::f64, context.bounded.value.shape());
    tape_.pass(context, [&] { return Bounded{zero, zero, true}; });
  }
  void run() { tape_.run(); }
  /// The bound of the derivative by the wanted input, or of delta; nullopt: exactly 0.
  std::optional<Tensor> error() const {
    if (!wanted_) return delta_error_;
    if (!leaf_) return std::nullopt;
    const std::optional<Bounded>& found = tape_.derivative(*leaf_->node);
    if (!found) return std::nullopt;
    return errors_.rounded(
        bounds::plus(found->error, bounds::times(bounds::magnitude(found->value), 2 * s_)),
        found->value);
  }

  TracedBound evaluated(Output, TracedBound value) const { return value; }

  TracedBound given(Input input) {
    const Bounded bounded = errors_.given(input);
    if (wanted_ != input) return {bounded};
    if (!leaf_) leaf_ = {bounded, tape_.add(nullptr)};
    return *leaf_;
  }

  TracedBound chosen_rows(const TracedBound& x) {
    const Shape& shape = x.bounded.value.shape();
    return unary(x, errors_.chosen_rows(x.bounded),
                 [this, N = shape[shape.size() - 2]](const Tensor& g) {
                   return scattered_rows(g, in_.rows, N);
                 });
  }

  [[noreturn]] TracedBound positions() const { throw_unbounded(); }

  TracedBound add_positions(const TracedBound& embeddings) {
    return unary(embeddings, errors_.add_positions(embeddings.bounded),
                 [this](const Tensor& g) { return positions_derivative(g, in_.options.position); });
  }

  TracedBound input_normalised(const TracedBound& x, const Operand& weight, const Operand& bias) {
    if (in_.options.input_norm == QkNorm::none) return x;
    return normalised_rows(
        x, weight, bias, errors_.input_normalised(x.bounded, bounded_of(weight), bounded_of(bias)),
        with_input_norm(in_.options));
  }

  TracedBound project(const TracedBound& x, const Operand& W, const Operand& b, Output stage) {
    if (!W && !b) return x;
    return record(
        errors_.project(x.bounded, bounded_of(W), bounded_of(b), stage), {x, W, b},
        [=, this](const Bounded& g) {
          const Shape& shape = g.value.shape();
          const Shape flat{shape[0] * shape[1], shape[2]};
          const Bounded rows{g.value.reshaped(flat), g.error.reshaped(flat), true};
          if (b)
            tape_.pass(*b, [&] {
              const Bounded sums = sums_to(rows, {1, flat[1]});
              return Bounded{sums.value.reshaped({flat[1]}), sums.error.reshaped({flat[1]})};
            });
          if (W)
            tape_.pass(*W, [&] {
              const Shape given{flat[0], x.bounded.value.shape()[2]};
              const Bounded factors{transposed_matrices(x.bounded.value.reshaped(given)),
                                    transposed_matrices(x.bounded.error.reshaped(given))};
              return product_of(factors, rows);
            });
          tape_.pass(x, [&] {
            if (!W) return g;
            const Bounded back{transposed_matrices(bounds::wide(W->bounded.value)),
                               transposed_matrices(W->bounded.error)};
            return stored(product_of(g, back));
          });
        });
  }

  TracedBound split_heads(const TracedBound& x, std::size_t heads) {
    return unary(x, errors_.split_heads(x.bounded, heads), side_by_side);
  }

  /// Near the limit, the derivative may be 0 or not.
  TracedBound clipped(const TracedBound& x) {
    if (in_.options.clip_qkv == 0) return x;
    return record(errors_.clipped(x.bounded), {x}, [=, this](const Bounded& g) {
      tape_.pass(x, [&] {
        Bounded result = g;
        const auto of = result.value.mutable_data<double>();
        const auto error = result.error.mutable_data<double>();
        for (std::size_t i = 0; i < of.size(); ++i) {
          const double beyond = std::abs(number(x.bounded.value, i)) - in_.options.clip_qkv;
          if (std::abs(beyond) <= x.bounded.error.data<double>()[i])
            error[i] += std::abs(of[i]);
          else if (beyond > 0)
            error[i] = 0;
          if (beyond > 0) of[i] = 0;
        }
        return result;
      });
    });
  }

  TracedBound qk_normalised(const TracedBound& x, const Operand& weight, const Operand& bias) {
    if (in_.options.qk_norm == QkNorm::none) return x;
    return normalised_rows(x, weight, bias,
                           errors_.qk_normalised(x.bounded, bounded_of(weight), bounded_of(bias)),
                           in_.options);
  }

  TracedBound rotated_queries(const TracedBound& x, const Operand& cos, const Operand& sin) {
    return rotated(x, cos, sin, true,
                   errors_.rotated_queries(x.bounded, bounded_of(cos), bounded_of(sin)));
  }
  TracedBound rotated_keys(const TracedBound& x, const Operand& cos, const Operand& sin) {
    return rotated(x, cos, sin, false,
                   errors_.rotated_keys(x.bounded, bounded_of(cos), bounded_of(sin)));
  }

  TracedBound scaled_by_position(const TracedBound& queries) {
    if (in_.options.query_scale.factor == 0) return queries;
    return unary(queries, errors_.scaled_by_position(queries.bounded),
                 [this](const Tensor& g) { return exact_.scaled_by_position(g); });
  }

  TracedBound append(const TracedBound& before, const TracedBound& behind) {
    return record(errors_.append(before.bounded, behind.bounded), {before, behind},
                  [=, this](const Bounded& g) {
                    const std::size_t first = before.bounded.value.shape()[2];
                    tape_.pass(before, [&] { return rows_of(g, 0, first); });
                    tape_.pass(behind,
                               [&] { return rows_of(g, first, behind.bounded.value.shape()[2]); });
                  });
  }
  TracedBound append_zero(const TracedBound& x) {
    return record(errors_.append_zero(x.bounded), {x}, [=, this](const Bounded& g) {
      tape_.pass(x, [&] { return rows_of(g, 0, g.value.shape()[2] - 1); });
    });
  }

  // attended() computes all of these.
  [[noreturn]] TracedBound score(const TracedBound&, const TracedBound&,
                                 const ScoreWeights<TracedBound>&) const {
    throw_unbounded();
  }
  [[noreturn]] TracedBound scale(const TracedBound&, const Operand&) const { throw_unbounded(); }
  [[noreturn]] std::pair<TracedBound, VisibleKeys> mask(const TracedBound&,
                                                        const Biases<TracedBound>&) const {
    throw_unbounded();
  }
  [[noreturn]] std::pair<TracedBound, TracedBound> normalise(const TracedBound&, const VisibleKeys&,
                                                             const Operand&) const {
    throw_unbounded();
  }
  [[noreturn]] TracedBound in_lse_base(const TracedBound&) const { throw_unbounded(); }
  [[noreturn]] TracedBound dropped(const TracedBound&) const { throw_unbounded(); }
  [[noreturn]] TracedBound mean_over_heads(const TracedBound&) const { throw_unbounded(); }
  [[noreturn]] TracedBound sum_over_queries(const TracedBound&) const { throw_unbounded(); }
  [[noreturn]] TracedBound row_statistic(Output, const TracedBound&) const { throw_unbounded(); }
  [[noreturn]] TracedBound weighted_values(const TracedBound&, const TracedBound&,
                                           const VisibleKeys&) const {
    throw_unbounded();
  }

  /// Everything from scores to the context before gates.
  TracedBound attended(const TracedBound& queries, const TracedBound& keys,
                       const TracedBound& values, const Biases<TracedBound>& biases,
                       const Operand& sinks, const Operand& head_scale) {
    Stages at;
    at.scores = errors_.score(queries.bounded, keys.bounded, {});
    at.scaled = errors_.scale(at.scores, bounded_of(head_scale));
    Biases<Bounded> added;
    std::vector<Operand> operands = {queries, keys, values, sinks, head_scale};
    for (const auto& [input, bias] : biases) {
      added.push_back({input, bias.bounded});
      operands.emplace_back(bias);
    }
    std::tie(at.masked, at.visible) = errors_.mask(at.scaled, added);
    std::tie(at.weights, at.logsumexp) =
        errors_.normalise(at.masked, at.visible, bounded_of(sinks));
    at.kept = in_[Input::dropout_mask] ? errors_.dropped(at.weights) : at.weights;
    at.context = errors_.stored(errors_.weighted_values(at.kept, values.bounded, at.visible));
    if (!wanted_) operands.push_back(TracedBound{{}, tape_.add(nullptr)});
    return record(at.context, operands, [=, this](const Bounded& g) {
      const RowSums rows = sums_of_rows(at, g);
      delta_error_ = errors_.rounded(rows.delta.error, rows.delta.value);
      if (!wanted_) return;
      tape_.pass(values, [&] { return of_groups(weighted(transposed(at.kept), g), values); });
      const Bounded of_masked = of_masked_scores(at, values.bounded, g, rows);
      for (const auto& [input, bias] : biases)
        tape_.pass(bias, [&, input = input, bias = bias] {
          return of_bias(of_masked, {input, bias.bounded.value});
        });
      if (sinks) tape_.pass(*sinks, [&] { return of_sinks(at, sinks->bounded, rows); });
      const Bounded of_scaled = in_.options.softcap_order == SoftcapOrder::before_mask
                                    ? before_softcap(of_masked, at.scaled)
                                    : of_masked;
      if (head_scale) tape_.pass(*head_scale, [&] { return of_head_scale(of_scaled, at.scores); });
      const Bounded of_scores = scaled_back(of_scaled, head_scale);
      tape_.pass(queries, [&] { return stored(weighted(of_scores, keys.bounded)); });
      tape_.pass(keys,
                 [&] { return of_groups(weighted(transposed(of_scores), queries.bounded), keys); });
    });
  }

  TracedBound sigmoid(const TracedBound& x) {
    const Bounded y = errors_.sigmoid(x.bounded);
    return record(y, {x}, [=, this](const Bounded& g) {
      tape_.pass(x, [&] {
        Bounded slope = y;
        const auto of = slope.value.mutable_data<double>();
        const auto error = slope.error.mutable_data<double>();
        for (std::size_t i = 0; i < of.size(); ++i) {
          error[i] += 3 * s_ * of[i];  // |1 - 2 y| is at most 1
          of[i] *= 1 - of[i];
        }
        return stored(elementwise(g, slope));
      });
    });
  }

  TracedBound gated(const TracedBound& context, const TracedBound& gates) {
    return record(errors_.gated(context.bounded, gates.bounded), {context, gates},
                  [=, this](const Bounded& g) {
                    tape_.pass(context, [&] { return stored(elementwise(g, gates.bounded)); });
                    tape_.pass(gates, [&] { return stored(elementwise(g, context.bounded)); });
                  });
  }

  TracedBound join_heads(const TracedBound& x) {
    return unary(x, errors_.join_heads(x.bounded),
                 [H = in_.H](const Tensor& g) { return attn::split_heads(g, H); });
  }

 private:
  /// From scores to context.
  struct Stages {
    Bounded scores, scaled, masked, weights, logsumexp, kept, context;
    VisibleKeys visible;
  };

  /// Of each row: delta, what is subtracted from the derivatives of its weights, and its error.
  struct RowSums {
    Bounded delta;  ///< (B, H, R)
    std::vector<double> centers, errors, sizes;
  };

  [[noreturn]] static void throw_unbounded() {
    throw Error(ErrorKind::internal, "no error bound is known for this derivative");
  }

  static double number(const Tensor& x, std::size_t i) {
    return bounds::finite(x.data<double>()[i]);
  }

  static std::optional<Bounded> bounded_of(const Operand& x) {
    return x ? std::optional(x->bounded) : std::nullopt;
  }

  TracedBound record(Bounded value, const std::vector<Operand>& operands,
                     Tape<Bounded>::Backward backward) {
    return {std::move(value), tape_.add_if_wanted(operands, std::move(backward))};
  }

  /// An operation whose derivative is linear: Tensor -> Tensor.
  template <class Linear>
  TracedBound unary(const TracedBound& x, const Bounded& value, Linear linear) {
    return record(value, {x}, [this, node = x.node, linear](const Bounded& g) {
      tape_.pass(TracedBound{{}, node}, [&] {
        return Bounded{linear(g.value), bounds::magnitude(linear(g.error)), true};
      });
    });
  }

  static Bounded rows_of(const Bounded& g, std::size_t first, std::size_t count) {
    return {row_range(g.value, first, count), row_range(g.error, first, count), true};
  }

  Bounded stored(Bounded x) const {
    x.error = errors_.rounded(std::move(x.error), x.value);
    x.is_stored = true;
    return x;
  }

  static Bounded transposed(const Bounded& x) {
    return {transposed_matrices(bounds::wide(x.value)), transposed_matrices(x.error), x.is_stored};
  }

  /// g times x, with the rounding of one product.
  Bounded elementwise(const Bounded& g, const Bounded& x) const {
    Tensor value = chained(g.value, bounds::wide(x.value));
    Tensor error =
        bounds::each([this](double e, double f, double a,
                            double b) { return e * (b + f) + f * a + 2 * s_ * a * b; },
                     g.error, x.error, bounds::magnitude(g.value), bounds::magnitude(x.value));
    return {std::move(value), std::move(error)};
  }

  /// a (..., m, k) times b (k, n), both stored before.
  Bounded product_of(const Bounded& a, const Bounded& b) const {
    const Tensor x = bounds::magnitude(a.value), y = bounds::magnitude(b.value);
    Tensor error = bounds::times(bounds::product(x, y), errors_.sum_of_products(y.shape()[0]));
    error = bounds::plus(std::move(error), bounds::product(a.error, y));
    error = bounds::plus(std::move(error), bounds::product(x, b.error));
    return {chained_product(bounds::wide(a.value), bounds::wide(b.value)), std::move(error)};
  }

  /// Weights or derivatives of scores (B, H, m, n) times (B, H or G, n, columns).
  Bounded weighted(const Bounded& a, const Bounded& b) const {
    return {chained_product(a.value, bounds::wide(b.value)), errors_.weighted_sum_error(a, b)};
  }

  /// Sums over the axes that have length 1 in `shape`.
  Bounded sums_to(const Bounded& x, const Shape& shape) const {
    const Tensor sums = sum_to(x.value, shape);
    const std::size_t terms = sums.size() == 0 ? 0 : x.value.size() / sums.size();
    return {sums, bounds::plus(sum_to(x.error, shape),
                               bounds::times(sum_to(bounds::magnitude(x.value), shape),
                                             bounds::growth(terms) * s_))};
  }

  /// Sums over the query heads of each head of `like`, stored.
  Bounded of_groups(const Bounded& x, const TracedBound& like) const {
    const std::size_t G = like.bounded.value.shape()[1], H = x.value.shape()[1];
    const double of_sums = G == H ? 0 : bounds::growth(H / G) * s_;
    return stored(
        {sum_of_groups(x.value, G),
         bounds::plus(sum_of_groups(x.error, G),
                      bounds::times(sum_of_groups(bounds::magnitude(x.value), G), of_sums))});
  }

  RowSums sums_of_rows(const Stages& at, const Bounded& g) const {
    const Shape& shape = at.context.value.shape();
    const std::size_t columns = shape[3], S = in_.S;
    RowSums rows;
    rows.delta = {delta_of(at.context.value, g.value),
                  Tensor(DType::f64, {shape[0], shape[1], shape[2]})};
    const std::optional<Bounded> of_weights = seed_of(Input::grad_weights);
    const std::optional<Bounded> of_logsumexp = seed_of(Input::grad_logsumexp);
    const double base = in_.options.lse_base;
    const double factor = base == std::numbers::e ? 1 : 1 / std::log(base);
    const auto e = rows.delta.error.mutable_data<double>();
    for (std::size_t row = 0; row < e.size(); ++row) {
      double worst = 0, squares = 0, sizes = 0, errors = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
        const double of = std::abs(number(g.value, i)),
                     context = std::abs(number(at.context.value, i));
        const double product = of * at.context.error.data<double>()[i];
        worst += product, squares += product * product;
        sizes += of * context;
        errors += g.error.data<double>()[i] * context;
      }
      e[row] = std::min(worst, bounds::kSpread * std::sqrt(squares)) + errors +
               bounds::growth(columns) * s_ * sizes;
      double center = number(rows.delta.value, row), error = e[row], size = std::abs(center);
      if (of_weights) {
        double sum = 0, magnitudes = 0;
        for (std::size_t i = row * S; i < (row + 1) * S; ++i) {
          const double w = number(at.weights.value, i), of = number(of_weights->value, i);
          sum += w * of;
          magnitudes += std::abs(w * of);
          error += at.weights.error.data<double>()[i] * std::abs(of) +
                   w * of_weights->error.data<double>()[i];
        }
        center += sum, size += magnitudes, error += bounds::growth(S) * s_ * magnitudes;
      }
      if (of_logsumexp) {
        const double of = number(of_logsumexp->value, row) * factor;
        center -= of, size += std::abs(of);
        error += of_logsumexp->error.data<double>()[row] * factor + 2 * s_ * std::abs(of);
      }
      rows.centers.push_back(center), rows.errors.push_back(error), rows.sizes.push_back(size);
    }
    return rows;
  }

  std::optional<Bounded> seed_of(Input input) const {
    return in_[input] ? std::optional(errors_.given(input)) : std::nullopt;
  }

  /// The derivative by the sum of scores and biases.
  Bounded of_masked_scores(const Stages& at, const Bounded& values, const Bounded& g,
                           const RowSums& rows) const {
    const Tensor of = bounds::magnitude(g.value), v = bounds::magnitude(values.value);
    Bounded dP{matmul(g.value, bounds::wide(values.value), Second::transposed, "error"),
               bounds::times(bounds::product(of, v, Second::transposed),
                             errors_.sum_of_products(v.shape()[3]))};
    dP.error = bounds::plus(std::move(dP.error), bounds::product(g.error, v, Second::transposed));
    dP.error =
        bounds::plus(std::move(dP.error), bounds::product(of, values.error, Second::transposed));
    if (in_[Input::dropout_mask]) {
      dP.value = exact_.dropped(dP.value);
      dP.error = bounds::plus(exact_.dropped(dP.error),
                              bounds::times(bounds::magnitude(dP.value), 3 * s_));
    }
    if (const std::optional<Bounded> of_weights = seed_of(Input::grad_weights)) {
      dP.value = bounds::plus(std::move(dP.value), of_weights->value);
      dP.error = bounds::plus(bounds::plus(std::move(dP.error), of_weights->error),
                              bounds::times(bounds::magnitude(dP.value), s_));
    }
    const double temperature = in_.options.temperature;
    const auto visible = at.visible.keys.data<bool>();
    const auto value = dP.value.mutable_data<double>(), error = dP.error.mutable_data<double>();
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double w = number(at.weights.value, i), of_weight = at.weights.error.data<double>()[i];
      const double center = rows.centers[i / in_.S], size = rows.sizes[i / in_.S];
      const double slope = bounds::finite(value[i]), difference = slope - center;
      if (!visible[i] || !std::isfinite(at.masked.value.data<double>()[i])) {
        value[i] = error[i] = 0;
        continue;
      }
      error[i] = (of_weight * std::abs(difference) + w * (error[i] + rows.errors[i / in_.S]) +
                  3 * s_ * w * (std::abs(slope) + size)) /
                 std::abs(temperature);
      value[i] = w * difference / temperature;
      error[i] += 2 * s_ * std::abs(value[i]);
    }
    return in_.options.softcap_order == SoftcapOrder::after_mask ? before_softcap(dP, at.masked)
                                                                 : dP;
  }

  Bounded before_softcap(Bounded g, const Bounded& y) const {
    const double c = in_.options.softcap;
    if (c == 0) return g;
    const auto value = g.value.mutable_data<double>(), error = g.error.mutable_data<double>();
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double t = number(y.value, i) / c, of_t = y.error.data<double>()[i] / c;
      const double slope = (1 - t) * (1 + t);
      error[i] =
          error[i] * slope + std::abs(value[i]) * (2 * std::abs(t) * of_t + of_t * of_t + 6 * s_);
      value[i] *= slope;
    }
    return g;
  }

  Bounded of_bias(const Bounded& g, const attn::Bias<Tensor>& bias) const {
    const Tensor sums = bias_derivative(g.value, bias, in_);
    const std::size_t terms = sums.size() == 0 ? 0 : g.value.size() / sums.size();
    const Tensor sizes = bounds::magnitude(bias_derivative(bounds::magnitude(g.value), bias, in_));
    return {sums, bounds::plus(bounds::magnitude(bias_derivative(g.error, bias, in_)),
                               bounds::times(sizes, bounds::growth(terms) * s_))};
  }

  Bounded of_sinks(const Stages& at, const Bounded& sinks, const RowSums& rows) const {
    Bounded result{Tensor(DType::f64, {in_.H}), Tensor(DType::f64, {in_.H})};
    const auto value = result.value.mutable_data<double>();
    const auto error = result.error.mutable_data<double>();
    const double of_sum =
        bounds::growth(rows.centers.size() / std::max<std::size_t>(1, in_.H)) * s_;
    for (std::size_t row = 0; row < rows.centers.size(); ++row) {
      const std::size_t h = row / in_.rows.size() % in_.H;
      const double sink = bounds::wide(sinks.value).data<double>()[h];
      const double log = bounds::wide(at.logsumexp.value).data<double>()[row];
      if (!std::isfinite(sink) || !std::isfinite(log)) continue;
      const double share = std::exp(sink - log);
      const double relative = at.logsumexp.error.data<double>()[row] +
                              sinks.error.data<double>()[h] +
                              2 * s_ * (std::abs(sink) + std::abs(log)) + 8 * s_ + of_sum;
      value[h] -= share * rows.centers[row];
      error[h] += share * (rows.sizes[row] * std::expm1(relative) + rows.errors[row]);
    }
    return result;
  }

  Bounded of_head_scale(const Bounded& g, const Bounded& scores) const {
    const Bounded terms = elementwise(g, scores);
    const double scale = in_.scale.factor();
    const Bounded sums = sums_to(terms, {1, in_.H, 1, 1});
    return {bounds::times(sums.value, scale).reshaped({in_.H}),
            bounds::times(sums.error, std::abs(scale)).reshaped({in_.H})};
  }

  /// Times the scales of the scores.
  Bounded scaled_back(const Bounded& g, const Operand& head_scale) const {
    const auto scaled = [&](const Tensor& x) {
      Tensor result = bounds::times(x, in_.scale.factor());
      return head_scale ? times_by_head(result, bounds::wide(head_scale->bounded.value)) : result;
    };
    const Tensor value = scaled(g.value);
    Tensor error = bounds::plus(bounds::magnitude(scaled(g.error)),
                                bounds::times(bounds::magnitude(value), 4 * s_));
    if (head_scale)
      error = bounds::plus(
          std::move(error),
          times_by_head(bounds::times(bounds::magnitude(g.value), std::abs(in_.scale.factor())),
                        head_scale->bounded.error));
    return {value, std::move(error)};
  }

  /// x (B, heads, N, D), or (B, N, D) with one head.
  TracedBound normalised_rows(const TracedBound& x, const Operand& weight, const Operand& bias,
                              Bounded value, const Options& options) {
    return record(std::move(value), {x, weight, bias}, [=, this](const Bounded& g) {
      Shape shape = x.bounded.value.shape();
      if (shape.size() == 3) shape.insert(shape.begin() + 1, 1);
      const Bounded rows{g.value.reshaped(shape), g.error.reshaped(shape)};
      const Bounded from{bounds::wide(x.bounded.value).reshaped(shape),
                         x.bounded.error.reshaped(shape)};
      const std::optional<Bounded> factors = bounded_of(weight), summands = bounded_of(bias);
      const auto value_of = [](const std::optional<Bounded>& terms) {
        return terms ? std::optional(bounds::wide(terms->value)) : std::nullopt;
      };
      const NormDerivatives of =
          norm_derivatives(rows.value, from.value, value_of(factors), value_of(summands), options);
      const NormDerivativeErrors errors =
          norm_derivative_errors(rows, from, factors, summands, options, errors_.precision());
      tape_.pass(x, [&] {
        const Shape& given = x.bounded.value.shape();
        return stored({of.x.reshaped(given), errors.x.reshaped(given)});
      });
      if (weight) tape_.pass(*weight, [&] { return stored({of.weight, errors.weight}); });
      if (bias) tape_.pass(*bias, [&] { return stored({of.bias, errors.bias}); });
    });
  }

  TracedBound rotated(const TracedBound& x, const Operand& cos, const Operand& sin,
                      bool are_queries, const Bounded& value) {
    if (in_.options.rotary.kind == Rotary::Kind::none) return x;
    return record(value, {x, cos, sin}, [=, this](const Bounded& g) {
      const Tensor& positions = are_queries ? in_.query_positions : in_.key_positions;
      auto [angles, errors] = errors_.angles_at(positions, bounded_of(cos), bounded_of(sin));
      if (are_queries)
        for (Angles* each : {&angles, &errors})
          *each = {exact_.chosen_rows(each->cos), exact_.chosen_rows(each->sin)};
      if (cos && (cos->node || sin->node)) {
        const auto of_table = [&](const TracedBound& table, const Tensor& of_angles) {
          return table_derivative(
              are_queries ? scattered_rows(of_angles, in_.rows, in_.L) : of_angles, positions,
              table.bounded.value.shape());
        };
        const Angles of = angle_derivatives(g.value, bounds::wide(x.bounded.value), angles,
                                            in_.options.rotary.kind);
        const Angles of_errors = angle_derivative_errors(g, x.bounded, angles);
        tape_.pass(*cos, [&, &of = of] {
          return stored({of_table(*cos, of.cos), of_table(*cos, of_errors.cos)});
        });
        tape_.pass(*sin, [&] {
          return stored({of_table(*sin, of.sin), of_table(*sin, of_errors.sin)});
        });
      }
      for (double& sine : angles.sin.mutable_data<double>()) sine = -sine;
      tape_.pass(x, [&, &angles = angles, &errors = errors] {
        return errors_.rotated(
            g, attn::rotated(g.value, angles, in_.options.rotary.kind, DType::f64), angles, errors);
      });
    });
  }

  /// Of angle_derivatives(): sums of products, which may be stored, over heads. The terms of
  /// cosines and sines have the same bound before they are added.
  Angles angle_derivative_errors(const Bounded& g, const Bounded& x, const Angles& angles) const {
    const Tensor of = bounds::magnitude(g.value), from = bounds::magnitude(x.value);
    const auto size = of.data<double>(), factor = from.data<double>();
    const auto of_size = g.error.data<double>(), of_factor = x.error.data<double>();
    Angles result{Tensor(DType::f64, angles.cos.shape()), Tensor(DType::f64, angles.cos.shape())};
    const auto cos = result.cos.mutable_data<double>(), sin = result.sin.mutable_data<double>();
    // A table row may be the sum over all tokens.
    const std::size_t terms = 2 * x.value.size() / std::max<std::size_t>(1, x.value.shape()[3]);
    const double own = errors_.precision().result + bounds::growth(terms) * s_;
    const auto product = [&](std::size_t i, std::size_t j) {
      return of_size[i] * (factor[j] + of_factor[j]) + size[i] * of_factor[j] +
             own * size[i] * factor[j];
    };
    each_rotated_pair(x.value.shape(), angles, in_.options.rotary.kind,
                      [&](std::size_t i, std::size_t j, std::size_t angle) {
                        cos[angle] += product(i, i) + product(j, j);
                        sin[angle] += product(j, i) + product(i, j);
                      });
    return result;
  }

  const Inputs& in_;
  const TensorOps exact_;
  const ErrorOps errors_;
  const double s_;
  const std::optional<Input> wanted_;
  std::optional<TracedBound> leaf_;
  std::optional<Tensor> delta_error_;
  Tape<Bounded> tape_;
};

}  // namespace

std::string missing_gradient_bound_reason(const Options& options) {
  if (options.score != Score::dot) return "for gradients of score functions other than dot";
  if (options.normaliser != Normaliser::softmax)
    return "for gradients of normalisers other than softmax";
  if (options.softmax_axis != SoftmaxAxis::keys) return "with softmax.axis all";
  if (options.softmax_precision != SoftmaxPrecision::automatic) return "with softmax.precision";
  return "";
}

Tensor expected_gradient_error(const Request& request, const Inputs& given,
                               const Precision& precision) {
  Inputs in = given;
  in.options.empty_rows = as_constants(given.options.empty_rows);
  const Gradient* gradient = std::get_if<Gradient>(&request);
  GradErrorOps ops(in, precision, gradient ? std::optional(gradient->of) : std::nullopt);
  Formula<GradErrorOps> formula(ops, in);
  const TracedBound context =
      ops.attended(formula.at(Output::queries), formula.all_keys(), formula.all_values(),
                   formula.biases(), formula.given(Input::sinks), formula.given(Input::head_scale));
  formula.provide(Output::head_context, formula.gated(context));
  for (const auto& [seed, output] : kSeeds)
    if (in[seed] && seed != Input::grad_weights && seed != Input::grad_logsumexp)
      ops.seed(formula.at(same_numbers_as(output)), seed);
  ops.seed_zero(context);
  ops.run();
  const std::optional<Tensor> error = ops.error();
  if (!error && gradient) return Tensor(DType::f64, gradient_shape(gradient->of, in));
  Tensor full = error ? *error : Tensor(DType::f64, full_shape(Output::delta, in));
  if (precision.stored == DType::f64) full = bounds::times(std::move(full), 2);
  return gradient ? to_user_layout(gradient->of, full, in)
                  : to_user_layout(Output::delta, full, in);
}

}  // namespace attn
