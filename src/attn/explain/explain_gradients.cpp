#include "attn/explain/explain_gradients.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "attn/problem/score_scale.h"

namespace attn {
namespace {

using math::fraction;
using math::name;
using math::number;
using math::row;
using math::sign;
using math::subscript;
using math::superscript;

Math transposed(const Math& letter) { return superscript(letter, name("T")); }

FormulaMatrix transposed(const FormulaMatrix& a) {
  return filled(a.columns, a.rows, [&](std::size_t i, std::size_t j) { return a.at(j, i); });
}

/// factor A B. A term with the factor 0 is 0.
FormulaMatrix product_of(const FormulaMatrix& a, const FormulaMatrix& b, double factor = 1) {
  return filled(a.rows, b.columns, [&](std::size_t i, std::size_t j) {
    double total = 0;
    for (std::size_t k = 0; k < a.columns; ++k)
      if (a.at(i, k) != 0 && b.at(k, j) != 0) total += a.at(i, k) * b.at(k, j);
    return factor * total;
  });
}

/// Numbers of one row of A B: each a sum of products, scaled as the result is.
Derivation worked_row(
    const std::string& letter, std::size_t at, const FormulaMatrix& a, const FormulaMatrix& b,
    const FormulaMatrix& result,
    const std::function<Math(const Math&)>& scaled = [](const Math& sum) { return sum; }) {
  Derivation worked;
  for (const std::size_t j : edges(result.columns)) {
    const Math total =
        sum(a.columns, [&](std::size_t k) { return product(a.at(at, k), b.at(k, j)); });
    worked.lines.push_back({element(letter, at, j), {scaled(total), number(result.at(at, j))}});
  }
  return worked;
}

class GradientStages {
 public:
  GradientStages(const ExplainSource& from, const std::vector<std::size_t>& keys)
      : from_(from),
        keys_(keys),
        q_(from.matrix(Output::queries)),
        k_(from.matrix(Output::keys)),
        v_(from.matrix(Output::values)),
        weights_(from.matrix(Output::weights)),
        of_context_{weights_.rows, v_.columns, from.input(Input::grad_context)},
        query_(from.query()),
        key_(keys.front()) {}

  std::vector<GradientStage> all() {
    values();
    weights();
    scores();
    queries_and_keys();
    projections();
    return std::move(stages_);
  }

 private:
  std::string key_name() const {
    const auto& tokens = from_.key_tokens();
    return "key " + std::to_string(key_) +
           (tokens.size() == k_.rows ? " (" + token_label(tokens[key_]) + ")" : "");
  }

  Math of_queries(const FormulaMatrix& x) const { return from_.of_queries(x); }
  Math of_keys(const FormulaMatrix& x) const { return from_.of_keys(x, keys_); }
  Math of_both(const FormulaMatrix& x) const { return from_.of_queries_and_keys(x, keys_); }

  /// x times the scale of the scores, as text.
  Math scaled(const Math& x) const { return attn::scaled(x, double(q_.columns), from_.options()); }

  Math over_o_scale(const Math& x) const { return attn::over_o_scale(x, from_.options()); }

  void values() {
    const double o_scale = from_.options().o_scale;
    of_values_ = product_of(transposed(weights_), of_context_, 1 / o_scale);
    stages_.push_back(
        {"Gradient of the values",
         "dC is the derivative of a loss with respect to the context C, and the gradients follow "
         "from it in the opposite order. A value is part of the context of each query, with its "
         "weight: dV sums the rows of dC, times a column of A" +
             std::string(o_scale == 1 ? "" : ", and is divided by o_scale, as C is") +
             ". The numbers are those of " + key_name() + ".",
         {{{{name("dC"), {of_queries(of_context_)}, Equation::Given::all},
            {name("dV"),
             {over_o_scale(row({transposed(name("A")), name("dC")})), of_keys(of_values_)}}}},
          worked_row("dv", key_, transposed(weights_), of_context_, of_values_,
                     [&](const Math& sum) { return over_o_scale(sum); })}});
  }

  void weights() {
    const double o_scale = from_.options().o_scale;
    of_weights_ = product_of(of_context_, transposed(v_), 1 / o_scale);
    stages_.push_back(
        {"Gradient of the weights",
         "A weight multiplies the value of its key, so its derivative is the product of that "
         "value and the row of dC" +
             std::string(o_scale == 1 ? "." : ", divided by o_scale."),
         {{{{name("dA"),
             {over_o_scale(row({name("dC"), transposed(name("V"))})), of_both(of_weights_)}}}},
          worked_row("da", query_, of_context_, transposed(v_), of_weights_,
                     [&](const Math& sum) { return over_o_scale(sum); })}});
  }

  /// Whether each row has weights that are not 0 and do not depend on the scores. Those of visible
  /// scores of minus infinity are NaN.
  std::vector<bool> constant_rows() const {
    std::vector<bool> rows(weights_.rows);
    if (from_.options().empty_rows == EmptyRows::uniform)
      for (std::size_t i = 0; i < rows.size(); ++i)
        rows[i] = from_.sees_none(i) && weights_.at(i, 0) > 0;
    return rows;
  }

  void scores() {
    const std::size_t S = weights_.columns;
    const std::vector<bool> is_constant = constant_rows();
    const FormulaMatrix mean = filled(weights_.rows, 1, [&](std::size_t i, std::size_t) {
      double total = 0;
      for (std::size_t j = 0; j < S; ++j)
        if (weights_.at(i, j) != 0) total += weights_.at(i, j) * of_weights_.at(i, j);
      return total;
    });
    of_scores_ = filled(weights_.rows, S, [&](std::size_t i, std::size_t j) {
      const double a = weights_.at(i, j);
      return a == 0 || is_constant[i] ? 0 : a * (of_weights_.at(i, j) - mean.at(i, 0));
    });
    const bool has_constants = std::count(is_constant.begin(), is_constant.end(), true) > 0;
    Derivation worked{{{subscript(name("δ"), name(std::to_string(query_))),
                        {sum(S,
                             [&](std::size_t j) {
                               return product(weights_.at(query_, j), of_weights_.at(query_, j));
                             }),
                         number(mean.at(query_, 0))}}}};
    for (const std::size_t j : edges(S))
      if (is_constant[query_])
        worked.lines.push_back({element("ds", query_, j), {number(0)}});
      else
        worked.lines.push_back(
            {element("ds", query_, j),
             {row({number(weights_.at(query_, j)), sign("·"),
                   math::parentheses(row({number(of_weights_.at(query_, j)), sign("−"),
                                          math::factor(mean.at(query_, 0))}))}),
              number(of_scores_.at(query_, j))}});
    stages_.push_back(
        {"Gradient of the scores",
         "The weights of a query sum to 1, so only differences from the mean matter: that of a row "
         "of "
         "dA, weighted by A, which kernels store as delta. Each row of dS sums to 0; hidden keys "
         "have 0." +
             std::string(has_constants ? " The weights of a query that sees no key do not depend "
                                         "on the scores: its row of dS is 0, and the formula is "
                                         "that of the other rows."
                                       : ""),
         {{{{name("δ"), {row({sign("Σ"), name("A"), sign("⊙"), name("dA")}), of_queries(mean)}},
            {name("dS"),
             {row({name("A"), sign("⊙"),
                   math::parentheses(row({name("dA"), sign("−"), name("δ")}))}),
              of_both(of_scores_)}}}},
          std::move(worked)}});
  }

  void queries_and_keys() {
    const double factor = score_scale(from_.options(), q_.columns).factor();
    of_queries_ = product_of(of_scores_, k_, factor);
    of_keys_ = product_of(transposed(of_scores_), q_, factor);
    const auto with_scale = [&](const Math& sum) {
      return factor == 1 ? sum : scaled(math::parentheses(sum));
    };
    stages_.push_back(
        {"Gradients of the queries and keys",
         "A score is the product of a query and a key, so dQ sums keys and dK sums queries, times "
         "dS and the scale of the scores. The numbers are those of " +
             from_.query_name() + ", then those of " + key_name() + ".",
         {{{{name("dQ"), {scaled(row({name("dS"), name("K")})), of_queries(of_queries_)}},
            {name("dK"), {scaled(row({transposed(name("dS")), name("Q")})), of_keys(of_keys_)}}}},
          worked_row("dq", query_, of_scores_, k_, of_queries_, with_scale),
          worked_row("dk", key_, transposed(of_scores_), q_, of_keys_, with_scale)}});
  }

  struct Projected {
    Input W;
    Output weights;
    std::string letter;
    const FormulaMatrix& gradient;
    bool of_memory;
  };

  void projections() {
    if (!from_.has(Output::inputs)) return;
    const bool has_memory = from_.given(Input::memory);
    const FormulaMatrix x = from_.first(Output::inputs);
    const FormulaMatrix m = has_memory ? from_.first(Input::memory) : x;
    std::vector<Equation> equations;
    std::vector<Math> terms;
    std::optional<FormulaMatrix> of_inputs;
    bool has_any = false, has_all = true;
    for (const Projected& p :
         {Projected{Input::W_Q, Output::W_Q_heads, "Q", of_queries_, false},
          Projected{Input::W_K, Output::W_K_heads, "K", of_keys_, has_memory},
          Projected{Input::W_V, Output::W_V_heads, "V", of_values_, has_memory}}) {
      const auto W = from_.weights_of(p.weights);
      const Math gradient = name("d" + p.letter), matrix = subscript(name("W"), name(p.letter));
      has_all = has_all && W;
      has_any = has_any || W;
      if (W)
        equations.push_back(
            {subscript(name("dW"), name(p.letter)),
             {row({transposed(name(p.of_memory ? "M" : "X")), gradient}),
              matrix_math(product_of(transposed(p.of_memory ? m : x), p.gradient))}});
      if (p.of_memory) continue;
      if (!terms.empty()) terms.push_back(sign("+"));
      terms.push_back(W ? row({gradient, transposed(matrix)}) : gradient);
      const FormulaMatrix part = W ? product_of(p.gradient, transposed(*W)) : p.gradient;
      of_inputs =
          !of_inputs ? part : filled(part.rows, part.columns, [&](std::size_t i, std::size_t j) {
            return of_inputs->at(i, j) + part.at(i, j);
          });
    }
    if (of_inputs) equations.push_back({name("dX"), {row(terms), of_queries(*of_inputs)}});
    if (!has_any) return;
    stages_.push_back({"Gradients of the projections",
                       std::string("Queries, keys and values are products of X and a matrix, so "
                                   "the same rule gives the gradients of both. X receives a part "
                                   "from each product.") +
                           (has_all ? "" : " Where the job has no matrix, it is the identity."),
                       {{std::move(equations)}}});
  }

  const ExplainSource& from_;
  const std::vector<std::size_t>& keys_;
  const FormulaMatrix q_, k_, v_, weights_;
  const FormulaMatrix of_context_;  ///< of one head, in any layout
  const std::size_t query_, key_;
  FormulaMatrix of_values_, of_weights_, of_scores_, of_queries_, of_keys_;
  std::vector<GradientStage> stages_;
};

}  // namespace

std::string unexplained_gradients(const ExplainSource& from) {
  const Options& options = from.options();
  for (const Input other : {Input::grad_output, Input::grad_weights, Input::grad_logsumexp})
    if (from.given(other)) return std::string(name_of(other));
  if (!from.given(Input::grad_context)) return "no grad_context";
  if (from.heads() > 1) return "several heads";
  const Shape& scores = from.output(Output::scores).shape();
  if (scores.size() > 2 && scores[0] > 1) return "several batch items";
  for (const Input input : {Input::past_K, Input::memory_V, Input::head_scale, Input::W_UV})
    if (from.given(input)) return std::string(name_of(input));
  if (!plain_vectors(from) || options.score != Score::dot || !options.rows.empty())
    return "queries or keys that are clipped, normalised, rotated, selected or compared otherwise";
  if (from.given(Input::sinks)) return "sinks";
  if (options.temperature != 1) return "a temperature";
  if (!plain_softmax(from) || options.softmax_axis != SoftmaxAxis::keys)
    return "another normaliser than softmax over keys, or another softmax.precision";
  if (options.softcap > 0) return "a softcap";
  for (std::size_t i = 0; i < from.matrix(Output::scores).rows; ++i)
    if (options.empty_rows == EmptyRows::nan && from.sees_none(i))
      return "a query that sees no key and has weights NaN";
  if (from.has(Output::dropped_weights)) return "dropout";
  if (from.has(Output::gates) || options.input_norm != QkNorm::none) return "gates or norms";
  if (from.matrix(Output::keys).rows != from.matrix(Output::weights).columns ||
      from.matrix(Output::values).rows != from.matrix(Output::weights).columns)
    return "keys that are appended or stored elsewhere";
  return "";
}

std::vector<GradientStage> gradient_stages(const ExplainSource& from,
                                           const std::vector<std::size_t>& keys) {
  return GradientStages(from, keys).all();
}

}  // namespace attn
