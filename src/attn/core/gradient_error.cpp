#include "attn/core/gradient_error.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "attn/core/attended_errors.h"
#include "attn/core/derivatives.h"
#include "attn/core/error_ops.h"
#include "attn/core/formula.h"
#include "attn/core/layout.h"
#include "attn/core/norm_error.h"
#include "attn/core/plan.h"
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

  /// Both must outlive this object. Derivatives by `wanted` are computed, and delta on request.
  GradErrorOps(const Inputs& inputs, const Precision& precision, std::set<Input> wanted,
               bool wants_delta)
      : in_(inputs),
        exact_(inputs),
        errors_(inputs, precision),
        s_(precision.sum),
        wanted_(std::move(wanted)),
        wants_delta_(wants_delta) {}

  void seed(const TracedBound& value, Input seed) {
    tape_.pass(value, [&] { return errors_.given(seed); });
  }
  /// The loss may depend on other results of attended() than the context.
  void seed_zero(const TracedBound& context) {
    const Tensor zero(DType::f64, context.bounded.value.shape());
    tape_.pass(context, [&] { return Bounded{zero, zero, true}; });
  }
  void run() { tape_.run(); }
  /// The derivative by a wanted input and its bound; nullopt: exactly 0.
  std::optional<Bounded> derivative(Input input) const {
    const auto leaf = leaves_.find(input);
    if (leaf == leaves_.end()) return std::nullopt;
    const std::optional<Bounded>& found = tape_.derivative(*leaf->second.node);
    if (!found) return std::nullopt;
    return Bounded{
        found->value,
        errors_.of_result(
            errors_.rounded(
                bounds::plus(found->error, bounds::times(bounds::magnitude(found->value), 2 * s_)),
                found->value),
            found->value)};
  }
  /// The sums of the context times its derivative, (B, H, R); nullopt: exactly 0.
  const std::optional<Bounded>& delta() const { return delta_; }

  TracedBound evaluated(Output, TracedBound value) const { return value; }

  TracedBound given(Input input) {
    const Bounded bounded = errors_.given(input);
    if (!wanted_.contains(input)) return {bounded};
    const auto [leaf, is_new] = leaves_.try_emplace(input);
    if (is_new) leaf->second = {bounded, tape_.add(nullptr)};
    return leaf->second;
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
          // Matrices of W, each with its rows of x and g.
          const std::size_t count =
              W && W->bounded.value.rank() == 3 ? W->bounded.value.shape()[0] : 1;
          const Shape& shape = g.value.shape();
          const std::size_t all = element_count({shape.begin(), shape.end() - 1});
          const Shape flat =
              count > 1 ? Shape{count, all / count, shape.back()} : Shape{all, shape.back()};
          const Bounded rows{g.value.reshaped(flat), g.error.reshaped(flat), true};
          if (b)
            tape_.pass(*b, [&] {
              const Bounded sums = sums_to(rows, {1, flat[1]});
              return Bounded{sums.value.reshaped({flat[1]}), sums.error.reshaped({flat[1]})};
            });
          if (W)
            tape_.pass(*W, [&] {
              Shape given = flat;
              given.back() = x.bounded.value.shape().back();
              const Bounded factors{transposed_matrices(x.bounded.value.reshaped(given)),
                                    transposed_matrices(x.bounded.error.reshaped(given))};
              const Bounded product = product_of(factors, rows);
              const Shape& of_W = W->bounded.value.shape();
              return Bounded{product.value.reshaped(of_W), product.error.reshaped(of_W)};
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
  [[noreturn]] TracedBound reported_logsumexp(const TracedBound&) const { throw_unbounded(); }
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
    AttendedOperands of{queries.bounded,   keys.bounded,          values.bounded, {},
                        bounded_of(sinks), bounded_of(head_scale)};
    std::vector<Operand> operands = {queries, keys, values, sinks, head_scale};
    for (const auto& [input, bias] : biases) {
      of.biases.push_back({input, bias.bounded});
      operands.emplace_back(bias);
    }
    if (wants_delta_) operands.push_back(TracedBound{{}, tape_.add(nullptr)});
    const auto errors =
        std::make_shared<const AttendedErrors>(in_, errors_.precision(), std::move(of));
    return record(errors->context(), operands, [=, this](const Bounded& g) {
      const auto is_wanted = [](const Operand& x) { return x && x->node; };
      AttendedErrors::Wanted wanted{is_wanted(queries), is_wanted(keys),       is_wanted(values),
                                    is_wanted(sinks),   is_wanted(head_scale), {}};
      for (const auto& bias : biases) wanted.biases.push_back(is_wanted(bias.value));
      AttendedErrors::Derivatives by = errors->derivatives(g, wanted);
      if (wants_delta_)
        delta_ = Bounded{
            by.delta.value,
            errors_.of_result(errors_.rounded(by.delta.error, by.delta.value), by.delta.value)};
      tape_.pass(queries, [&] { return *std::move(by.queries); });
      tape_.pass(keys, [&] { return *std::move(by.keys); });
      tape_.pass(values, [&] { return *std::move(by.values); });
      if (sinks) tape_.pass(*sinks, [&] { return *std::move(by.sinks); });
      if (head_scale) tape_.pass(*head_scale, [&] { return *std::move(by.head_scale); });
      for (std::size_t i = 0; i < biases.size(); ++i)
        tape_.pass(biases[i].value, [&] { return *std::move(by.biases[i]); });
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

  TracedBound divided(const TracedBound& x, double divisor) {
    return record(errors_.divided(x.bounded, divisor), {x}, [=, this](const Bounded& g) {
      tape_.pass(x, [&] { return stored(errors_.divided(g, divisor)); });
    });
  }

  TracedBound join_heads(const TracedBound& x) {
    return unary(x, errors_.join_heads(x.bounded),
                 [H = in_.H](const Tensor& g) { return attn::split_heads(g, H); });
  }

  TracedBound swap_batch_and_heads(const TracedBound& x) {
    return unary(x, errors_.swap_batch_and_heads(x.bounded), attn::swap_batch_and_heads);
  }

 private:
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
    Tensor error =
        bounds::times(bounds::product(x, y), errors_.sum_of_products(y.shape()[y.rank() - 2]));
    error = bounds::plus_product(std::move(error), a.error, y);
    error = bounds::plus_product(std::move(error), x, b.error);
    return {chained_product(bounds::wide(a.value), bounds::wide(b.value)), std::move(error)};
  }

  /// Sums over the axes that have length 1 in `shape`.
  Bounded sums_to(const Bounded& x, const Shape& shape) const {
    const Tensor sums = sum_to(x.value, shape);
    const std::size_t terms = sums.size() == 0 ? 0 : x.value.size() / sums.size();
    return {sums, bounds::plus(sum_to(x.error, shape),
                               bounds::times(sum_to(bounds::magnitude(x.value), shape),
                                             bounds::growth(terms) * s_))};
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
  const std::set<Input> wanted_;
  const bool wants_delta_;
  std::map<Input, TracedBound> leaves_;
  std::optional<Bounded> delta_;
  Tape<Bounded> tape_;
};

}  // namespace

std::string missing_gradient_bound_reason(const Options& options) {
  if (options.score != Score::dot) return "for gradients of score functions other than dot";
  if (options.normaliser != Normaliser::softmax)
    return "for gradients of normalisers other than softmax";
  if (options.softmax_axis != SoftmaxAxis::keys) return "with softmax.axis all";
  if (options.softmax_precision != SoftmaxPrecision::automatic) return "with softmax.precision";
  if (!options.lse_sinks) return "with lse_sinks excluded";
  return "";
}

std::vector<Expected> expected_gradients(const std::vector<Request>& requests, const Inputs& given,
                                         const Precision& precision) {
  Inputs in = given;
  in.options.empty_rows = as_constants(given.options.empty_rows);
  std::set<Input> wanted;
  bool wants_delta = false;
  for (const Request& request : requests) {
    if (const Gradient* gradient = std::get_if<Gradient>(&request))
      wanted.insert(gradient->of);
    else
      wants_delta = true;
  }
  GradErrorOps ops(in, precision, wanted, wants_delta);
  {
    Formula<GradErrorOps> formula(ops, in);
    const TracedBound context = ops.attended(
        formula.at(Output::queries), formula.all_keys(), formula.all_values(), formula.biases(),
        formula.given(Input::sinks), formula.given(Input::head_scale));
    formula.provide(Output::head_context, formula.finished(context));
    for (const auto& [seed, output] : kSeeds)
      if (in[seed] && seed != Input::grad_weights && seed != Input::grad_logsumexp)
        ops.seed(formula.at(same_numbers_as(output)), seed);
    ops.seed_zero(context);
  }
  ops.run();
  std::vector<Expected> all;
  for (const Request& request : requests) {
    const Gradient* gradient = std::get_if<Gradient>(&request);
    const std::optional<Bounded> found = gradient ? ops.derivative(gradient->of) : ops.delta();
    if (!found) {
      const Shape shape = gradient
                              ? gradient_shape(gradient->of, in)
                              : to_user_shape(Output::delta, full_shape(Output::delta, in), in);
      const Tensor zeros(DType::f64, shape);
      all.push_back({zeros, bounds::each([&](double) { return precision.least; }, zeros)});
      continue;
    }
    const Tensor error =
        precision.stored == DType::f64 ? bounds::times(found->error, 2) : found->error;
    const auto in_user_layout = [&](const Tensor& full) {
      return gradient ? to_user_layout(gradient->of, full, in)
                      : to_user_layout(Output::delta, full, in);
    };
    all.push_back({in_user_layout(found->value), in_user_layout(error)});
  }
  return all;
}

std::size_t bytes_of_expected_gradients(const std::vector<Request>& requests, const Inputs& in) {
  const bool has_biases = std::any_of(requests.begin(), requests.end(), [](const Request& request) {
    const Gradient* gradient = std::get_if<Gradient>(&request);
    return gradient &&
           std::find(kBiasInputs.begin(), kBiasInputs.end(), gradient->of) != kBiasInputs.end();
  });
  // What is computed before and after attention, with errors and derivatives.
  std::size_t elements = 0;
  for (const auto& [name, tensor] : in.given)
    if (is_float(tensor.dtype())) elements = saturating_sum(elements, tensor.size());
  return saturating_sum(saturating_product({4, elements, sizeof(double)}),
                        bytes_of_attended_errors(in, has_biases));
}

}  // namespace attn
