#include "attn/bounds/gradient_error.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "attn/attention/derivatives.h"
#include "attn/attention/formula.h"
#include "attn/attention/traced_ops.h"
#include "attn/bounds/attended_errors.h"
#include "attn/bounds/error_ops.h"
#include "attn/bounds/norm_error.h"
#include "attn/problem/layout.h"
#include "attn/tensor/rearrange.h"
#include "attn/tensor/shape.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

/// A tensor of the formula with its bound.
using TracedBound = TracedValue<Bounded>;

struct BoundedNormDerivatives {
  Bounded x, weight, bias;
};

/// Arithmetic of TracedOps, with error bounds.
class BoundedDerivatives {
 public:
  explicit BoundedDerivatives(const ErrorOps& errors)
      : errors_(errors), s_(errors.precision().sum) {}

  Shape shape(const Bounded& x) const { return x.value.shape(); }
  Bounded reshaped(const Bounded& x, const Shape& shape) const {
    return {x.value.reshaped(shape), x.error.reshaped(shape), x.is_stored};
  }
  Bounded wide(const Bounded& x) const { return x; }
  template <class Linear>
  Bounded moved(const Bounded& g, const Linear& linear) const {
    return {linear(g.value), bounds::magnitude(linear(g.error)), true};
  }
  Bounded stored(Bounded x) const {
    x.error = errors_.rounded(std::move(x.error), x.value);
    x.is_stored = true;
    return x;
  }
  /// With the rounding of one product.
  Bounded times(const Bounded& a, const Bounded& b) const {
    Tensor value = chained(bounds::wide(a.value), bounds::wide(b.value));
    Tensor error =
        bounds::each([this](double e, double f, double x,
                            double y) { return e * (y + f) + f * x + 2 * s_ * x * y; },
                     a.error, b.error, bounds::magnitude(a.value), bounds::magnitude(b.value));
    return {std::move(value), std::move(error)};
  }
  /// Sums over the axes that have length 1 in `shape`.
  Bounded sums(const Bounded& x, const Shape& shape) const {
    const Tensor total = sum_to(x.value, shape);
    const std::size_t terms = total.size() == 0 ? 0 : x.value.size() / total.size();
    return {total, bounds::plus(sum_to(x.error, shape),
                                bounds::times(sum_to(bounds::magnitude(x.value), shape),
                                              bounds::growth(terms) * s_))};
  }
  Bounded of_weights(const Bounded& x, const Bounded& g) const {
    return product_of({transposed_matrices(x.value), transposed_matrices(x.error)}, g);
  }
  Bounded of_rows(const Bounded& g, const Bounded& W) const {
    return stored(
        product_of(g, {transposed_matrices(bounds::wide(W.value)), transposed_matrices(W.error)}));
  }
  /// Near the limit, the derivative may be 0 or not.
  Bounded unclipped(Bounded g, const Bounded& x, double limit) const {
    const auto of = g.value.mutable_data<double>();
    const auto error = g.error.mutable_data<double>();
    for (std::size_t i = 0; i < of.size(); ++i) {
      const double beyond = std::abs(bounds::finite(x.value.data<double>()[i])) - limit;
      if (std::abs(beyond) <= x.error.data<double>()[i])
        error[i] += std::abs(of[i]);
      else if (beyond > 0)
        error[i] = 0;
      if (beyond > 0) of[i] = 0;
    }
    return g;
  }
  Bounded sigmoid_slope(Bounded y) const {
    const auto of = y.value.mutable_data<double>();
    const auto error = y.error.mutable_data<double>();
    for (std::size_t i = 0; i < of.size(); ++i) {
      error[i] += 3 * s_ * of[i];  // |1 - 2 y| is at most 1
      of[i] *= 1 - of[i];
    }
    return y;
  }
  BoundedNormDerivatives normalised(const Bounded& g, const Bounded& x,
                                    const std::optional<Bounded>& weight,
                                    const std::optional<Bounded>& bias,
                                    const Options& options) const {
    const auto value_of = [](const std::optional<Bounded>& terms) {
      return terms ? std::optional(bounds::wide(terms->value)) : std::nullopt;
    };
    const Bounded from{bounds::wide(x.value), x.error};
    const NormDerivatives of =
        norm_derivatives(g.value, from.value, value_of(weight), value_of(bias), options);
    const NormDerivativeErrors errors =
        norm_derivative_errors(g, from, weight, bias, options, errors_.precision());
    BoundedNormDerivatives result{stored({of.x, errors.x}), {}, {}};
    if (weight) result.weight = stored({of.weight, errors.weight});
    if (bias) result.bias = stored({of.bias, errors.bias});
    return result;
  }

 private:
  /// a (..., m, k) times b (k, n), both stored before.
  Bounded product_of(const Bounded& a, const Bounded& b) const {
    const Tensor x = bounds::magnitude(a.value), y = bounds::magnitude(b.value);
    Tensor error =
        bounds::times(bounds::product(x, y), errors_.sum_of_products(y.shape()[y.rank() - 2]));
    error = bounds::plus_product(std::move(error), a.error, y);
    error = bounds::plus_product(std::move(error), x, b.error);
    return {chained_product(bounds::wide(a.value), bounds::wide(b.value)), std::move(error)};
  }

  const ErrorOps errors_;
  const double s_;
};

/// The operations of the formula on values and error bounds, and on bounds of their derivatives.
class GradErrorOps : public TracedOps<ErrorOps, BoundedDerivatives> {
 public:
  /// Both must outlive this object. Derivatives by `wanted` are computed, and delta on request.
  GradErrorOps(const Inputs& inputs, const Precision& precision, std::set<Input> wanted,
               bool wants_delta)
      : TracedOps(inputs, ErrorOps(inputs, precision),
                  BoundedDerivatives(ErrorOps(inputs, precision)), std::move(wanted), wants_delta),
        s_(precision.sum) {}

  void seed(const TracedBound& value, Input seed) {
    tape_.pass(value, [&] { return exact_.given(seed); });
  }
  /// The loss may depend on other results of attended() than the context.
  void seed_zero(const TracedBound& context) {
    const Tensor zero(DType::f64, context.value.value.shape());
    tape_.pass(context, [&] { return Bounded{zero, zero, true}; });
  }
  /// The derivative by a wanted input and its bound; nullopt: exactly 0.
  std::optional<Bounded> derivative(Input input) const {
    const std::optional<Bounded> found = found_derivative(input);
    if (!found) return std::nullopt;
    return Bounded{
        found->value,
        exact_.of_result(
            exact_.rounded(
                bounds::plus(found->error, bounds::times(bounds::magnitude(found->value), 2 * s_)),
                found->value),
            found->value)};
  }

  [[noreturn]] TracedBound positions() const { throw_unbounded(); }

  TracedBound rotated_queries(const TracedBound& x, const Operand& cos, const Operand& sin) {
    return rotated(x, cos, sin, true,
                   exact_.rotated_queries(x.value, value_of(cos), value_of(sin)));
  }
  TracedBound rotated_keys(const TracedBound& x, const Operand& cos, const Operand& sin) {
    return rotated(x, cos, sin, false, exact_.rotated_keys(x.value, value_of(cos), value_of(sin)));
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
    AttendedOperands of{queries.value,   keys.value,          values.value, {},
                        value_of(sinks), value_of(head_scale)};
    std::vector<Operand> operands = {queries, keys, values, sinks, head_scale};
    for (const auto& [input, bias] : biases) {
      of.biases.push_back({input, bias.value});
      operands.emplace_back(bias);
    }
    if (wants_delta_) operands.push_back(TracedBound{{}, tape_.add(nullptr)});
    const auto errors =
        std::make_shared<const AttendedErrors>(in_, exact_.precision(), std::move(of));
    return record(errors->context(), operands, [=, this](const Bounded& g) {
      const auto is_wanted = [](const Operand& x) { return x && x->node; };
      AttendedErrors::Wanted wanted{is_wanted(queries), is_wanted(keys),       is_wanted(values),
                                    is_wanted(sinks),   is_wanted(head_scale), {}};
      for (const auto& bias : biases) wanted.biases.push_back(is_wanted(bias.value));
      AttendedErrors::Derivatives by = errors->derivatives(g, wanted);
      if (wants_delta_)
        delta_ = Bounded{
            by.delta.value,
            exact_.of_result(exact_.rounded(by.delta.error, by.delta.value), by.delta.value)};
      tape_.pass(queries, [&] { return *std::move(by.queries); });
      tape_.pass(keys, [&] { return *std::move(by.keys); });
      tape_.pass(values, [&] { return *std::move(by.values); });
      if (sinks) tape_.pass(*sinks, [&] { return *std::move(by.sinks); });
      if (head_scale) tape_.pass(*head_scale, [&] { return *std::move(by.head_scale); });
      for (std::size_t i = 0; i < biases.size(); ++i)
        tape_.pass(biases[i].value, [&] { return *std::move(by.biases[i]); });
    });
  }

 private:
  [[noreturn]] static void throw_unbounded() {
    throw Error(ErrorKind::internal, "no error bound is known for this derivative");
  }

  TracedBound rotated(const TracedBound& x, const Operand& cos, const Operand& sin,
                      bool are_queries, const Bounded& value) {
    if (in_.options.rotary.kind == Rotary::Kind::none) return x;
    return record(value, {x, cos, sin}, [=, this](const Bounded& g) {
      const Tensor& positions = are_queries ? in_.query_positions : in_.key_positions;
      auto [angles, errors] = exact_.angles_at(positions, value_of(cos), value_of(sin));
      if (are_queries)
        for (Angles* each : {&angles, &errors})
          *each = {tensors_.chosen_rows(each->cos), tensors_.chosen_rows(each->sin)};
      if (cos && (cos->node || sin->node)) {
        const auto of_table = [&](const TracedBound& table, const Tensor& of_angles) {
          return table_derivative(
              are_queries ? scattered_rows(of_angles, in_.rows, in_.L) : of_angles, positions,
              table.value.value.shape());
        };
        const Angles of = angle_derivatives(g.value, bounds::wide(x.value.value), angles,
                                            in_.options.rotary.kind);
        const Angles of_errors = angle_derivative_errors(g, x.value, angles);
        tape_.pass(*cos, [&, &of = of] {
          return arithmetic_.stored({of_table(*cos, of.cos), of_table(*cos, of_errors.cos)});
        });
        tape_.pass(*sin, [&] {
          return arithmetic_.stored({of_table(*sin, of.sin), of_table(*sin, of_errors.sin)});
        });
      }
      for (double& sine : angles.sin.mutable_data<double>()) sine = -sine;
      tape_.pass(x, [&, &angles = angles, &errors = errors] {
        return exact_.rotated(
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
    const double own = exact_.precision().result + bounds::growth(terms) * s_;
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

  const double s_;
};

}  // namespace

std::string missing_gradient_bound_reason(const Inputs& in) {
  const Options& options = in.options;
  if (options.score != Score::dot) return "for gradients of score functions other than dot";
  if (options.normaliser != Normaliser::softmax)
    return "for gradients of normalisers other than softmax";
  if (options.softmax_axis != SoftmaxAxis::keys) return "with softmax.axis all";
  if (options.softmax_precision != SoftmaxPrecision::automatic) return "with softmax.precision";
  if (in[Input::grad_logsumexp] && leaves_sinks_out(in)) return "with lse_sinks excluded";
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
  for (const auto& [name, tensor] : in.tensors)
    if (is_float(tensor.dtype())) elements = saturating_sum(elements, tensor.size());
  return saturating_sum(saturating_product({4, elements, sizeof(double)}),
                        bytes_of_attended_errors(in, has_biases));
}

}  // namespace attn
