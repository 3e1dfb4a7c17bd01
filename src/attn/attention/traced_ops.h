// The operations of the formula that remember how they were computed, so that derivatives can be
// computed in the opposite order (reverse-mode differentiation), where numbers
// (attention/grad_ops.h) and numbers with error bounds (bounds/gradient_error.cpp) have the same
// derivatives.
//
// g is the derivative of a loss by the result of an operation (attention/derivatives.h).
#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "attn/attention/derivatives.h"
#include "attn/attention/qk_norm.h"
#include "attn/attention/tape.h"
#include "attn/attention/tensor_ops.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/rearrange.h"

namespace attn {

/// A value of the formula. It has a node if the loss may depend on a wanted input through it.
template <class Number>
struct TracedValue {
  Number value;
  std::optional<std::size_t> node = {};
};

// clang-format off
/// Derived classes add the other operations.
///
/// `Exact` computes values, without derivatives: TensorOps or ErrorOps. `Arithmetic` computes with
/// derivatives:
///   shape(x), reshaped(x, shape)
///   wide(x)               in float64
///   moved(g, linear)      moves elements, or multiplies them by constants; linear: of tensors
///   stored(x)             what a kernel writes to memory
///   times(a, b)           a b for elements, 0 where a is 0
///   sums(x, shape)        over the axes that have length 1 in `shape`
///   of_weights(x, g)      x^T g for rows of x and g
///   of_rows(g, W)         g W^T
///   unclipped(g, x, limit)    g where |x| is at most the limit
///   sigmoid_slope(y)      y (1 - y)
///   normalised(g, x, weight, bias, options)    of qk_normalised(): x, weight and bias
// clang-format on
template <class Exact, class Arithmetic>
class TracedOps {
 public:
  using Number = typename Exact::Value;
  using Value = TracedValue<Number>;
  using Visible = VisibleKeys;
  using Operand = std::optional<Value>;

  /// `inputs` must outlive this object. Derivatives by `wanted` are computed, and delta on request.
  /// `rounding` is applied to derivatives (attention/tape.h).
  TracedOps(const Inputs& inputs, Exact exact, Arithmetic arithmetic, std::set<Input> wanted,
            bool wants_delta, typename Tape<Number>::Rounding rounding = nullptr)
      : in_(inputs),
        exact_(std::move(exact)),
        tensors_(inputs),
        arithmetic_(std::move(arithmetic)),
        tape_(std::move(rounding)),
        wants_delta_(wants_delta),
        wanted_(std::move(wanted)) {}

  /// Computes the derivatives. Call it once.
  void run() { tape_.run(); }
  /// The sums of the context times its derivative, before gates, (B, H, R); nullopt: exactly 0.
  const std::optional<Number>& delta() const { return delta_; }

  Value evaluated(Output, Value value) const { return value; }

  Value given(Input input) {
    const Number value = arithmetic_.wide(exact_.given(input));
    if (!wanted_.contains(input)) return {value};
    const auto [leaf, is_new] = leaves_.try_emplace(input);
    if (is_new) leaf->second = {value, tape_.add(nullptr)};
    return leaf->second;
  }

  Value chosen_rows(const Value& x) {
    const Shape shape = arithmetic_.shape(x.value);
    return moved(x, exact_.chosen_rows(x.value),
                 [this, N = shape[shape.size() - 2]](const Tensor& g) {
                   return scattered_rows(g, in_.rows, N);
                 });
  }

  Value add_positions(const Value& embeddings) {
    return moved(embeddings, exact_.add_positions(embeddings.value),
                 [this](const Tensor& g) { return positions_derivative(g, in_.options.position); });
  }

  Value input_normalised(const Value& x, const Operand& weight, const Operand& bias) {
    if (in_.options.input_norm == QkNorm::none) return x;
    return normalised(x, weight, bias,
                      exact_.input_normalised(x.value, value_of(weight), value_of(bias)),
                      with_input_norm(in_.options));
  }

  Value project(const Value& x, const Operand& W, const Operand& b, Output stage) {
    if (!W && !b) return x;
    return record(
        exact_.project(x.value, value_of(W), value_of(b), stage), {x, W, b},
        [=, this](const Number& g) {
          // Matrices of W, each with its rows of x and g.
          const Shape shape = arithmetic_.shape(g);
          const Shape of_W = W ? arithmetic_.shape(W->value) : Shape{};
          const std::size_t count = of_W.size() == 3 ? of_W[0] : 1;
          const std::size_t all = element_count({shape.begin(), shape.end() - 1});
          const Shape flat =
              count > 1 ? Shape{count, all / count, shape.back()} : Shape{all, shape.back()};
          const Number rows = arithmetic_.reshaped(g, flat);
          if (b)
            tape_.pass(*b, [&] {
              return arithmetic_.reshaped(arithmetic_.sums(rows, {1, flat[1]}), {flat[1]});
            });
          if (W)
            tape_.pass(*W, [&] {
              Shape of_x = flat;
              of_x.back() = arithmetic_.shape(x.value).back();
              return arithmetic_.reshaped(
                  arithmetic_.of_weights(arithmetic_.reshaped(x.value, of_x), rows), of_W);
            });
          tape_.pass(x, [&] { return W ? arithmetic_.of_rows(g, W->value) : g; });
        });
  }

  Value split_heads(const Value& x, std::size_t heads) {
    return moved(x, exact_.split_heads(x.value, heads), side_by_side);
  }

  Value clipped(const Value& x) {
    if (in_.options.clip_qkv == 0) return x;
    return record(exact_.clipped(x.value), {x}, [=, this](const Number& g) {
      tape_.pass(x, [&] { return arithmetic_.unclipped(g, x.value, in_.options.clip_qkv); });
    });
  }

  Value qk_normalised(const Value& x, const Operand& weight, const Operand& bias) {
    if (in_.options.qk_norm == QkNorm::none) return x;
    return normalised(x, weight, bias,
                      exact_.qk_normalised(x.value, value_of(weight), value_of(bias)), in_.options);
  }

  Value scaled_by_position(const Value& queries) {
    if (in_.options.query_scale.factor == 0) return queries;
    return moved(queries, exact_.scaled_by_position(queries.value),
                 [this](const Tensor& g) { return tensors_.scaled_by_position(g); });
  }

  Value append(const Value& before, const Value& behind) {
    return record(
        exact_.append(before.value, behind.value), {before, behind}, [=, this](const Number& g) {
          const std::size_t first = arithmetic_.shape(before.value)[2];
          tape_.pass(before, [&] { return rows_of(g, 0, first); });
          tape_.pass(behind, [&] { return rows_of(g, first, arithmetic_.shape(behind.value)[2]); });
        });
  }
  Value append_zero(const Value& x) {
    return moved(x, exact_.append_zero(x.value),
                 [](const Tensor& g) { return row_range(g, 0, g.shape()[2] - 1); });
  }

  Value sigmoid(const Value& x) {
    const Number y = exact_.sigmoid(x.value);
    return record(y, {x}, [=, this](const Number& g) {
      tape_.pass(x, [&] {
        return arithmetic_.stored(arithmetic_.times(g, arithmetic_.sigmoid_slope(y)));
      });
    });
  }

  Value gated(const Value& context, const Value& gates) {
    return record(
        exact_.gated(context.value, gates.value), {context, gates}, [=, this](const Number& g) {
          tape_.pass(context,
                     [&] { return arithmetic_.stored(arithmetic_.times(g, gates.value)); });
          // A query without keys has the context 0, whatever its derivative is.
          tape_.pass(gates,
                     [&] { return arithmetic_.stored(arithmetic_.times(context.value, g)); });
        });
  }

  Value divided(const Value& x, double divisor) {
    return record(exact_.divided(x.value, divisor), {x}, [=, this](const Number& g) {
      tape_.pass(x, [&] { return arithmetic_.stored(exact_.divided(g, divisor)); });
    });
  }

  Value join_heads(const Value& x) {
    return moved(x, exact_.join_heads(x.value),
                 [H = in_.H](const Tensor& g) { return attn::split_heads(g, H); });
  }

  Value swap_batch_and_heads(const Value& x) {
    return moved(x, exact_.swap_batch_and_heads(x.value), attn::swap_batch_and_heads);
  }

 protected:
  static std::optional<Number> value_of(const Operand& x) {
    return x ? std::optional(x->value) : std::nullopt;
  }

  /// The result of an operation, with a node if one of its operands has one.
  Value record(Number value, const std::vector<Operand>& operands,
               typename Tape<Number>::Backward backward) {
    return {std::move(value), tape_.add_if_wanted(operands, std::move(backward))};
  }

  /// The derivative by a wanted input; nullopt if the loss does not depend on it.
  std::optional<Number> found_derivative(Input input) const {
    const auto leaf = leaves_.find(input);
    return leaf == leaves_.end() ? std::nullopt : tape_.derivative(*leaf->second.node);
  }

  const Inputs& in_;
  const Exact exact_;
  const TensorOps tensors_;
  const Arithmetic arithmetic_;
  Tape<Number> tape_;
  const bool wants_delta_;
  std::optional<Number> delta_;

 private:
  Number rows_of(const Number& g, std::size_t first, std::size_t count) const {
    return arithmetic_.moved(g, [&](const Tensor& x) { return row_range(x, first, count); });
  }

  /// An operation that moves elements, or multiplies them by constants. Linear: Tensor -> Tensor.
  template <class Linear>
  Value moved(const Value& x, Number value, Linear linear) {
    return record(std::move(value), {x}, [this, node = x.node, linear](const Number& g) {
      tape_.pass(Value{{}, node}, [&] { return arithmetic_.moved(g, linear); });
    });
  }

  /// x (B, heads, N, D), or (B, N, D) with one head.
  Value normalised(const Value& x, const Operand& weight, const Operand& bias, Number value,
                   const Options& options) {
    return record(std::move(value), {x, weight, bias}, [=, this](const Number& g) {
      const Shape own = arithmetic_.shape(x.value);
      Shape shape = own;
      if (shape.size() == 3) shape.insert(shape.begin() + 1, 1);
      const auto of = arithmetic_.normalised(arithmetic_.reshaped(g, shape),
                                             arithmetic_.reshaped(x.value, shape), value_of(weight),
                                             value_of(bias), options);
      tape_.pass(x, [&] { return arithmetic_.reshaped(of.x, own); });
      if (weight) tape_.pass(*weight, [&] { return of.weight; });
      if (bias) tape_.pass(*bias, [&] { return of.bias; });
    });
  }

  const std::set<Input> wanted_;
  std::map<Input, Value> leaves_;
};

}  // namespace attn
