#include "attn/explain/explain.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>

#include "attn/attention/attention.h"
#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/explain/explain_gradients.h"
#include "attn/explain/explain_source.h"

namespace attn {
namespace {

using math::fraction;
using math::name;
using math::number;
using math::root;
using math::row;
using math::sign;
using math::subscript;
using math::superscript;

constexpr Output kNeeded[] = {
    Output::positions,    Output::inputs,        Output::W_Q_heads,      Output::W_K_heads,
    Output::W_V_heads,    Output::queries,       Output::keys,           Output::values,
    Output::scores,       Output::scaled_scores, Output::masked_scores,  Output::weights,
    Output::head_context, Output::context,       Output::output,         Output::present_K,
    Output::present_V,    Output::gates,         Output::dropped_weights};

/// One of the three projections of the inputs.
struct Projection {
  std::string letter;
  Output result, weight_heads;
  Input bias;
};
const Projection kQueries{"Q", Output::queries, Output::W_Q_heads, Input::b_Q};
const Projection kKeys{"K", Output::keys, Output::W_K_heads, Input::b_K};
const Projection kValues{"V", Output::values, Output::W_V_heads, Input::b_V};

Math power_of_e(double exponent) { return superscript(name("e"), number(exponent)); }

bool is_hidden(double score) { return score == -std::numeric_limits<double>::infinity(); }

bool has_number(const Math& math) {
  return math.value || std::any_of(math.parts.begin(), math.parts.end(), has_number);
}

/// left = formula = blanks. A formula between them stays, but not what one number is computed from.
Equation with_blanks(const Equation& line) {
  const Math& result = line.rights.back();
  const bool is_matrix = result.kind == Math::Kind::matrix;
  Equation blank{line.left, {}};
  for (std::size_t i = 0; i + 1 < line.rights.size(); ++i)
    if (is_matrix || !has_number(line.rights[i])) blank.rights.push_back(line.rights[i]);
  blank.rights.push_back(is_matrix ? result : math::blank());
  if (is_matrix)
    for (Math& cell : blank.rights.back().parts)
      if (cell.value && !is_hidden(*cell.value) &&
          (line.given == Equation::Given::none || *cell.value != 0))
        cell = math::blank();
  return blank;
}

/// Whether some rows or columns of a matrix are left out.
bool is_abbreviated(const Math& math) {
  return math.kind == Math::Kind::matrix &&
         std::any_of(math.parts.begin(), math.parts.end(),
                     [](const Math& cell) { return cell.kind == Math::Kind::sign && !cell.value; });
}

/// Writes the steps of one job in order.
class Explainer {
 public:
  Explainer(const ExplainSource& source, std::optional<int> decimals)
      : from_(source),
        decimals_(decimals),
        query_(source.query()),
        scores_(source.matrix(Output::scores)),
        largest_(largest_keys()) {}

  WorkedSteps steps() {
    steps_.title = "Attention, step by step";
    introduce();
    project_queries();
    project_keys_and_values();
    score();
    scale();
    mask();
    normalise();
    drop();
    mix();
    join_heads();
    differentiate();
    if (decimals_) round_numbers();
    return std::move(steps_);
  }

  WorkedSteps exercise() {
    if (const std::string reason = unsolvable(); !reason.empty())
      fail_usage("no exercise for a job with " + reason);
    WorkedSteps all = steps();
    WorkedSteps sheet{all.title, {}};
    for (auto& block : all.blocks) {
      if (auto* const derivation = std::get_if<Derivation>(&block))
        for (Equation& line : derivation->lines) {
          const bool is_input = line.given == Equation::Given::all;
          if (is_input && is_abbreviated(line.rights.back()))
            fail_usage(plain_text(line.left) + " has too many rows or columns for an exercise: " +
                       "matrices of up to 6 by 6 are written out");
          if (!is_input) line = with_blanks(line);
        }
      if (!std::holds_alternative<HeatMap>(block)) sheet.blocks.push_back(std::move(block));
    }
    sheet.blocks.front() =
        Paragraph{"Fill in the matrix of each stage, and the numbers below it, which belong to " +
                  from_.query_name() + ", row " + std::to_string(query_) +
                  " of the matrices. Rows and columns count from 0; give numbers with three "
                  "significant digits."};
    return sheet;
  }

 private:
  /// What the steps do not state in numbers; "" if all results follow from the inputs in them.
  std::string unsolvable() const {
    const Options& options = from_.options();
    const auto any_of = [&](std::initializer_list<Input> inputs) {
      return std::any_of(inputs.begin(), inputs.end(), [&](Input i) { return from_.given(i); });
    };
    if (from_.heads() > 1) return "several heads";
    if (any_of({Input::past_K, Input::past_V, Input::memory_V, Input::bias_K}) || options.zero_key)
      return "a cache, a second memory or appended keys";
    if (!plain_vectors(from_) || score_formula(options).empty())
      return "queries or keys that are clipped, normalised, rotated or compared otherwise";
    if (from_.head_scale() || from_.adds_to_scores())
      return "numbers that are added to the scores or multiply those of a head";
    if (!plain_softmax(from_)) return "another normaliser than softmax";
    if (options.bf16_products) return "products in another precision";
    if (from_.has(Output::gates) || any_of({Input::W_UV}) || options.input_norm != QkNorm::none)
      return "gates, norms or values from latent vectors";
    if (from_.has(Output::inputs) && !options.rows.empty()) return "some rows only";
    return "";
  }

  /// " Q is (4, 3)."
  static std::string shape(const std::string& letter, const FormulaMatrix& matrix) {
    return " " + letter + " is " + to_string(Shape{matrix.rows, matrix.columns}) + ".";
  }

  void heading(const std::string& text) {
    steps_.blocks.emplace_back(Heading{std::to_string(++number_) + ". " + text});
  }
  void words(const std::string& text) { steps_.blocks.emplace_back(Paragraph{text}); }
  void lines(std::vector<Equation> equations) {
    if (!equations.empty()) steps_.blocks.emplace_back(Derivation{std::move(equations)});
  }
  static Equation given(Math left, Math matrix) {
    return {std::move(left), {std::move(matrix)}, Equation::Given::all};
  }

  Math of_query(const std::string& letter, std::size_t column) const {
    return element(letter, query_, column);
  }

  Math of_queries(const FormulaMatrix& x) const { return from_.of_queries(x); }
  Math of_keys(const FormulaMatrix& x) const { return from_.of_keys(x, largest_); }
  Math of_queries_and_keys(const FormulaMatrix& x) const {
    return from_.of_queries_and_keys(x, largest_);
  }

  /// The keys to which the query gives the three largest weights.
  std::vector<std::size_t> largest_keys() const {
    constexpr std::size_t kMost = 3;
    const FormulaMatrix weights = from_.matrix(Output::weights);
    std::vector<std::size_t> keys(weights.columns);
    std::iota(keys.begin(), keys.end(), std::size_t{0});
    const auto size = [&](std::size_t key) {
      const double weight = weights.at(query_, key);
      return std::isnan(weight) ? 0 : std::abs(weight);
    };
    std::stable_sort(keys.begin(), keys.end(),
                     [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
    keys.resize(std::min(kMost, keys.size()));
    return keys;
  }
  std::vector<std::size_t> shown_keys(const FormulaMatrix& matrix) const {
    return edges(matrix.columns, largest_);
  }

  /// All keys and values, including those of the past and those that are appended.
  FormulaMatrix keys() const {
    return with_appended(from_.given(Input::past_K) ? Output::present_K : Output::keys,
                         Input::bias_K);
  }
  FormulaMatrix values() const {
    return with_appended(from_.given(Input::past_V) ? Output::present_V : Output::values,
                         Input::bias_V);
  }
  FormulaMatrix with_appended(Output output, Input bias) const {
    const FormulaMatrix rows = from_.matrix(output);
    const auto learned = from_.bias_of(bias, rows.columns);
    const std::size_t count = rows.rows + (learned ? 1 : 0), zeros = from_.options().zero_key;
    if (count + zeros == rows.rows) return rows;
    return filled(count + zeros, rows.columns, [&](std::size_t i, std::size_t j) {
      return i < rows.rows ? rows.at(i, j) : i < count ? learned->at(0, j) : 0;
    });
  }

  void introduce() {
    words("Each stage is shown as a matrix, then computed step by step for " + from_.query_name() +
          ", row " + std::to_string(query_) + " of the matrices. Rows and columns count from 0; " +
          "numbers have at most " +
          (decimals_ ? counted(static_cast<std::size_t>(*decimals_), "digit") + " after the point."
                     : "six digits."));
    if (from_.heads() > 1)
      words("This is head " + std::to_string(from_.head()) + " of " +
            std::to_string(from_.heads()) + ", counted from 0.");
    const Tensor& all = from_.output(Output::scores);
    if (all.rank() > 2 && all.shape()[0] > 1 && all.size() > scores_.size() * from_.heads())
      words("Only the first batch item is shown.");
  }

  /// result = source W + b, and the arithmetic for the chosen row.
  void project(const FormulaMatrix& source, const Projection& projection,
               const FormulaMatrix& result) {
    const std::string& letter = projection.letter;
    const std::optional<FormulaMatrix> weights = from_.weights_of(projection.weight_heads);
    const std::optional<FormulaMatrix> bias = from_.bias_of(projection.bias, result.columns);
    std::vector<Math> formula = {name("X")};
    std::vector<Equation> equations = {given(name("X"), of_queries(source))};
    if (weights) {
      formula.push_back(subscript(name("W"), name(letter)));
      equations.push_back(given(formula.back(), matrix_math(*weights)));
    }
    if (bias) {
      formula.push_back(sign("+"));
      formula.push_back(subscript(name("b"), name(letter)));
      equations.push_back(given(formula.back(), matrix_math(*bias)));
    }
    if (plain_vectors(from_) && (weights || from_.heads() == 1))
      equations.push_back({name(letter), {row(formula), of_queries(result)}});
    else
      equations.push_back({name(letter), {of_queries(result)}});
    lines(std::move(equations));
    if (!weights || !plain_vectors(from_)) return;
    std::vector<Equation> worked;
    for (const std::size_t j : edges(result.columns)) {
      Math total = sum(source.columns, [&](std::size_t k) {
        return product(source.at(query_, k), weights->at(k, j));
      });
      if (bias) total = row({total, sign("+"), math::factor(bias->at(0, j))});
      worked.push_back({of_query("q", j), {total, number(result.at(query_, j))}});
    }
    lines(std::move(worked));
  }

  /// The norm in front of the attention.
  void normalise_inputs() {
    const QkNorm norm = from_.options().input_norm;
    if (norm == QkNorm::none || !from_.has(Output::inputs)) return;
    heading("Normalised inputs");
    const bool is_layer = norm == QkNorm::layer;
    const double given = from_.options().input_norm_epsilon;
    const double epsilon = given != 0 ? given : is_layer ? 1e-5 : 1e-6;
    const double offset = from_.options().norm_offset;
    const bool has_weights = from_.given(Input::input_norm_weight);
    const Position& position = from_.options().position;
    const bool is_scaled = position.embedding_scale != 1 || position.embedding_scale_sqrt;
    words(std::string("Each row of the embeddings E") + (is_scaled ? ", times their scale," : "") +
          (from_.has(Output::positions) ? " with their positional encoding" : "") +
          " is divided by its " +
          (is_layer ? "standard deviation, after its mean has been subtracted (layer normalisation)"
                    : "root mean square (RMS normalisation)") +
          (has_weights ? ", and multiplied by the weights w of the norm" : "") +
          (has_weights && offset != 0 ? " plus norm_offset" : "") +
          (from_.given(Input::input_norm_bias) ? "; its bias b is added." : ".") +
          " The number under the root prevents division by 0.");
    const Math mean_square = row({name("mean"), superscript(name("E"), number(2))});
    const Math deviation = row({name("var"), name("E")});
    const Math above = is_layer ? row({name("E"), sign("−"), name("mean"), name("E")}) : name("E");
    std::vector<Math> formula = {fraction(
        above, root(row({is_layer ? deviation : mean_square, sign("+"), number(epsilon)})))};
    if (has_weights) {
      formula.push_back(sign("⊙"));
      formula.push_back(
          offset == 0 ? name("w")
                      : row({sign("("), name("w"), sign("+"), math::factor(offset), sign(")")}));
    }
    if (from_.given(Input::input_norm_bias)) {
      formula.push_back(sign("+"));
      formula.push_back(name("b"));
    }
    lines({{name("X"),
            {row(std::move(formula)), of_keys(from_.first(Output::inputs))},
            Equation::Given::all}});
  }

  void project_queries() {
    normalise_inputs();
    heading("Queries");
    const FormulaMatrix queries = from_.matrix(Output::queries);
    if (!from_.has(Output::inputs)) {
      words(std::string(plain_vectors(from_)
                            ? "The queries are given, one row each."
                            : "The queries are given, one row each, and then clipped, "
                              "normalised or rotated by position, or scaled, as the job "
                              "specifies. The matrix shows the result.") +
            shape("Q", queries));
      return lines({given(name("Q"), of_queries(queries))});
    }
    if (from_.has(Output::positions) && from_.options().input_norm == QkNorm::none)
      words("X holds the tokens' embeddings with their positional encoding added.");
    const FormulaMatrix x = from_.first(Output::inputs);
    words("Each row of X, a token, becomes a query: what the token looks for." + shape("X", x) +
          shape("Q", queries) +
          (from_.given(Input::W_Q) || from_.heads() == 1 ? ""
           : from_.given(Input::b_Q)
               ? " Without W_Q, Q has the columns of X that belong to this head, plus b_Q."
               : " Without W_Q, Q has the columns of X that belong to this head."));
    if (!plain_vectors(from_))
      words(
          "The projections are then clipped, normalised or rotated by position, as the job "
          "specifies.");
    project(x, kQueries, queries);
  }

  void given_or_projected(const Projection& projection) {
    const std::string& letter = projection.letter;
    const FormulaMatrix result = from_.matrix(projection.result);
    const bool has_memory = from_.given(Input::memory);
    const bool is_key = projection.result == Output::keys;
    const bool has_own = !is_key && from_.given(Input::memory_V);
    const Math source = has_own      ? subscript(name("M"), name("V"))
                        : has_memory ? name("M")
                                     : name("X");
    const auto weights = from_.weights_of(projection.weight_heads);
    if (!from_.has(Output::inputs) || !weights)
      return lines({given(name(letter), of_keys(result))});
    std::vector<Math> formula = {source, subscript(name("W"), name(letter))};
    std::vector<Equation> equations;
    if (has_own)
      equations.push_back(given(source, of_keys(from_.first(Input::memory_V))));
    else if (has_memory && (is_key || !from_.weights_of(Output::W_K_heads)))
      equations.push_back(given(source, of_keys(from_.first(Input::memory))));
    equations.push_back(given(formula.back(), matrix_math(*weights)));
    if (const auto bias = from_.bias_of(projection.bias, result.columns)) {
      formula.push_back(sign("+"));
      formula.push_back(subscript(name("b"), name(letter)));
      equations.push_back(given(formula.back(), matrix_math(*bias)));
    }
    std::vector<Math> rights;
    const bool plain = is_key ? plain_vectors(from_) : from_.options().clip_qkv == 0;
    if (plain && !keys_of_more_tokens()) rights.push_back(row(formula));
    rights.push_back(of_keys(result));
    equations.push_back({name(letter), std::move(rights)});
    lines(std::move(equations));
  }

  /// Whether keys and values are products of rows that X lacks.
  bool keys_of_more_tokens() const {
    return from_.has(Output::inputs) && !from_.given(Input::memory) &&
           !from_.options().rows.empty();
  }

  void project_keys_and_values() {
    heading("Keys and values");
    words("Queries are compared with the rows of K. Each row of V is what a token contributes." +
          shape("K", from_.matrix(Output::keys)) + shape("V", from_.matrix(Output::values)) +
          (keys_of_more_tokens() ? " They are computed from all tokens, of which X has only the "
                                   "selected rows."
                                 : ""));
    given_or_projected(kKeys);
    given_or_projected(kValues);
    std::string others;
    if (from_.given(Input::past_K))
      others = from_.matrix(Output::keys).rows == 0
                   ? " There are no new keys and values: queries see those of the past."
                   : " The keys and values of the past come first; queries see these too.";
    if (from_.given(Input::bias_K))
      others += " The key bias_K and the value bias_V, which every query sees, are appended.";
    if (from_.options().zero_key)
      others += " A key and a value of zeros, which every query sees, come last.";
    if (others.empty()) return;
    words(others.substr(1) + shape("K", keys()) + shape("V", values()));
    lines({given(name("K"), of_keys(keys())), given(name("V"), of_keys(values()))});
  }

  void score() {
    heading("Scores");
    words("How well each query (row) matches each key (column)." + shape("S", scores_));
    if (!plain_vectors(from_))
      words(
          "Before that, queries and keys are clipped, normalised or rotated by position, or "
          "scaled, "
          "as the job specifies.");
    const bool is_rounded = from_.options().bf16_products;
    if (is_rounded) words("The elements of Q and K are rounded to bfloat16 before the product.");
    std::vector<Math> rights = score_formula(from_.options());
    const bool known = !rights.empty() && plain_vectors(from_) && !is_rounded;
    rights.push_back(of_queries_and_keys(scores_));
    lines({{name("S"), std::move(rights)}});
    const FormulaMatrix q = from_.matrix(Output::queries), k = keys();
    if (known && k.rows == scores_.columns) work_out_scores(q, k);
  }

  void work_out_scores(const FormulaMatrix& q, const FormulaMatrix& k) {
    std::vector<Equation> worked;
    for (const std::size_t j : shown_keys(scores_)) {
      double qq = 0, kk = 0;
      for (std::size_t d = 0; d < q.columns; ++d) {
        qq += q.at(query_, d) * q.at(query_, d);
        kk += k.at(j, d) * k.at(j, d);
      }
      Math total =
          sum(q.columns, [&](std::size_t d) { return product(q.at(query_, d), k.at(j, d)); });
      if (from_.options().score == Score::cosine)
        total = fraction(total, row({root(number(qq)), sign("·"), root(number(kk))}));
      worked.push_back({of_query("s", j), {total, number(scores_.at(query_, j))}});
    }
    lines(std::move(worked));
  }

  void scale() {
    const FormulaMatrix result = from_.matrix(Output::scaled_scores);
    if (equal(result, scores_)) return;
    heading("Scale");
    scores_letter_ = "s'";
    words(
        "Products grow with the width of the vectors. The scale keeps them in a range where "
        "softmax "
        "does not saturate.");
    const std::optional<double> own = from_.head_scale();
    if (own) words("Those of this head are also multiplied by its own scale, the last factor.");
    const auto width = static_cast<double>(from_.matrix(Output::queries).columns);
    const auto scaled = [&](const Math& score) {
      return attn::scaled(score, width, from_.options(), own);
    };
    lines({{name("S'"), {scaled(name("S")), of_queries_and_keys(result)}}});
    std::vector<Equation> worked;
    for (const std::size_t j : shown_keys(result))
      worked.push_back({of_query("s'", j),
                        {scaled(number(scores_.at(query_, j))), number(result.at(query_, j))}});
    lines(std::move(worked));
  }

  void mask() {
    const FormulaMatrix before = from_.matrix(Output::scaled_scores),
                        result = from_.matrix(Output::masked_scores);
    std::size_t hidden = 0;
    for (std::size_t i = 0; i < result.rows; ++i)
      for (std::size_t j = 0; j < result.columns; ++j) hidden += from_.hides(i, j) ? 1 : 0;
    if (hidden == 0 && equal(result, before)) return;
    heading("Mask");
    const std::string letter = scores_letter_;
    scores_letter_ = "s''";
    const Options& options = from_.options();
    const bool adds = from_.adds_to_scores(), caps = caps_after_mask(options);
    std::string text;
    if (adds) text += "Additive masks and biases by distance are added to the scores. ";
    if (caps) text += std::string("The softcap limits the ") + (adds ? "sums. " : "scores. ");
    if (hidden > 0)
      text += std::string(
                  "Keys that a query may not see are set to minus infinity; their weights are 0") +
              (weights_without_keys(from_.matrix(Output::weights)).empty()
                   ? ". "
                   : ", unless the query sees no key. ");
    if (!text.empty()) words(text.substr(0, text.size() - 1));
    std::vector<Math> rights;
    if (caps && !adds && hidden == 0)
      rights.push_back(capped(name(letter == "s" ? "S" : "S'"), options));
    rights.push_back(of_queries_and_keys(result));
    lines({{name("S''"), std::move(rights)}});
    if (!caps || adds) return;
    std::vector<Equation> worked;
    for (const std::size_t j : shown_keys(result))
      if (!is_hidden(result.at(query_, j)))
        worked.push_back(
            {of_query("s''", j),
             {capped(number(before.at(query_, j)), options), number(result.at(query_, j))}});
    lines(std::move(worked));
  }

  void normalise() {
    const FormulaMatrix scores = from_.matrix(Output::masked_scores),
                        weights = from_.matrix(Output::weights);
    if (plain_softmax(from_)) {
      heading("Softmax");
      work_out_softmax(scores, weights);
    } else {
      heading("Weights");
      words("The normaliser, temperature and sinks of the job turn scores into weights." +
            shape("A", weights));
      lines({{name("A"), {of_queries_and_keys(weights)}}});
    }
    picture(weights);
  }

  /// Which weights are not quotients of exponentials; "" if these are 0.
  std::string weights_without_keys(const FormulaMatrix& weights) const {
    const EmptyRows empty_rows = from_.options().empty_rows;
    std::size_t i = 0;  // padded queries have weights 0
    while (i < weights.rows && (weights.at(i, 0) == 0 || !from_.sees_none(i))) ++i;
    if (empty_rows == EmptyRows::zero || i == weights.rows) return "";
    return std::string(" The weights of queries that see no key are ") +
           (empty_rows == EmptyRows::uniform ? "equal" : "NaN") +
           ", as the option empty_rows says.";
  }

  /// The scores, after the mask, of keys that are seen.
  struct SeenScores {
    bool any = false, has_nan = false;
    double max = -std::numeric_limits<double>::infinity();  ///< of those that are numbers
  };
  SeenScores seen_scores(const FormulaMatrix& scores, std::size_t begin, std::size_t count) const {
    SeenScores seen;
    for (std::size_t k = begin; k < begin + count; ++k) {
      if (from_.hides(k / scores.columns, k % scores.columns)) continue;
      seen.any = true;
      seen.has_nan = seen.has_nan || std::isnan(scores[k]);
      seen.max = std::max(seen.max, scores[k]);
    }
    return seen;
  }

  /// Why the weights of keys that are seen are not numbers. `s` is the letter of the scores.
  void undefined_weights(const SeenScores& seen, const Math& s) {
    const bool whole = from_.options().softmax_axis == SoftmaxAxis::all;
    const std::string sees = whole ? " that queries see" : " that this query sees";
    const std::string weights = "the weights of all keys" + sees;
    if (seen.has_nan)
      return words("The score of a key" + sees +
                   " is not a number (NaN). So are the sum, which includes its exponential, and " +
                   weights + ".");
    words((is_hidden(seen.max) ? "The scores of all keys" + sees + " are minus infinity."
                               : "The largest score of the keys" + sees + " is infinite.") +
          " The largest minus itself is not a number (NaN), and so are the sum and " + weights +
          ".");
    const Math largest = row({sign("max"), s}), max = number(seen.max);
    lines({{largest, {max}},
           {row({largest, sign("−"), largest}),
            {row({max, sign("−"), math::factor(seen.max)}),
             number(std::numeric_limits<double>::quiet_NaN())}}});
  }

  void work_out_softmax(const FormulaMatrix& scores, const FormulaMatrix& weights) {
    const bool whole = from_.options().softmax_axis == SoftmaxAxis::all;
    const std::size_t begin = whole ? 0 : query_ * scores.columns;
    const std::size_t count = whole ? scores.size() : scores.columns;
    words(
        "Exponentials, divided by their sum over " +
        std::string(whole ? "the whole matrix" : "the keys") +
        ". Subtracting the largest score first prevents overflow and does not change the result." +
        shape("A", weights) + weights_without_keys(weights));
    const Math s = name(scores_letter_);
    const Math terms = superscript(name("e"), row({s, sign("−"), sign("max"), s}));
    lines({{name("A"), {fraction(terms, row({sign("Σ"), terms})), of_queries_and_keys(weights)}}});
    const SeenScores seen = seen_scores(scores, begin, count);
    if (!seen.any) return words(whole ? "No query sees a key." : "This query sees no key.");
    if (seen.has_nan || std::isinf(seen.max)) return undefined_weights(seen, s);
    const double max = seen.max;
    double total = 0;
    for (std::size_t k = 0; k < count; ++k) total += std::exp(scores[begin + k] - max);
    const auto power = [&](double score) {
      return is_hidden(score) ? number(0) : power_of_e(score - max);
    };
    const std::vector<std::size_t> terms_shown = whole ? std::vector<std::size_t>() : largest_;
    std::vector<Equation> worked = {
        {row({sign("max"), s}), {number(max)}},
        {row({sign("Σ"), terms}),
         {sum(
              count, [&](std::size_t k) { return power(scores[begin + k]); }, terms_shown),
          number(total)}}};
    for (const std::size_t j : shown_keys(weights))
      worked.push_back(
          {of_query("a", j),
           {fraction(power(scores.at(query_, j)), number(total)), number(weights.at(query_, j))}});
    lines(std::move(worked));
  }

  void picture(const FormulaMatrix& weights) {
    HeatSource source;
    source.name = name_of(Output::weights);
    source.tensor = weights.elements;
    source.masked = from_.marks_of_hidden();
    source.column_tokens = from_.key_tokens();
    source.row_tokens = from_.row_tokens();
    steps_.blocks.emplace_back(make_heat_map(source, {}));
  }

  void drop() {
    if (!from_.has(Output::dropped_weights)) return;
    heading("Dropout");
    const double p = *from_.options().dropout_p;
    const FormulaMatrix weights = from_.matrix(Output::weights),
                        result = from_.matrix(Output::dropped_weights);
    words("Dropout sets some weights to 0 and divides the others by 1 − p." + shape("A'", result));
    lines({given(name("p"), number(p)),
           {name("A'"), {of_queries_and_keys(result)}, Equation::Given::zeros}});
    std::vector<Equation> worked;
    for (const std::size_t j : shown_keys(result))
      if (result.at(query_, j) != 0)
        worked.push_back({of_query("a'", j),
                          {fraction(number(weights.at(query_, j)), number(1 - p)),
                           number(result.at(query_, j))}});
    lines(std::move(worked));
  }

  void mix() {
    heading("Context");
    const bool drops = from_.has(Output::dropped_weights);
    const std::string letter = drops ? "A'" : "A";
    const FormulaMatrix weights = from_.matrix(drops ? Output::dropped_weights : Output::weights),
                        v = values();
    const FormulaMatrix result = from_.matrix(Output::head_context);
    words("Each query receives the sum of the values, multiplied by its weights." +
          shape("C", result));
    const bool is_rounded = from_.options().bf16_products;
    if (is_rounded) words("The weights and values are rounded to bfloat16 before the product.");
    const Options& options = from_.options();
    const std::string over = options.o_scale == 1 ? "" : " and divided by the option o_scale";
    if (from_.has(Output::gates)) {
      words("Each element is then multiplied by its output gate" + over + ".");
      const FormulaMatrix gates = from_.matrix(Output::gates);
      return lines({given(name("G"), of_queries(gates)),
                    {name("C"),
                     {over_o_scale(row({name("G"), sign("⊙"), name(letter), name("V")}), options),
                      of_queries(result)}}});
    }
    if (!over.empty()) words("Each element is then divided by the option o_scale.");
    lines(
        {{name("C"), {over_o_scale(row({name(letter), name("V")}), options), of_queries(result)}}});
    if (v.rows != weights.columns || is_rounded) return;
    std::vector<Equation> worked;
    for (const std::size_t d : edges(result.columns))
      worked.push_back({of_query("c", d),
                        {over_o_scale(sum(
                                          weights.columns,
                                          [&](std::size_t j) {
                                            return product(weights.at(query_, j), v.at(j, d));
                                          },
                                          largest_),
                                      options),
                         number(result.at(query_, d))}});
    lines(std::move(worked));
  }

  void join_heads() {
    const bool are_apart =
        from_.output(Output::context).rank() == 4 || from_.options().layout == Layout::thd;
    const bool joined = !are_apart || from_.has(Output::output);
    if (from_.heads() > 1 && joined) {
      heading("Concatenated heads");
      const FormulaMatrix context = from_.joined_context();
      words("The contexts of all heads are concatenated." + shape("C", context));
      lines({{name("C"), {of_queries(context)}}});
    }
    if (!from_.has(Output::output)) return;
    heading("Output");
    if (from_.given(Input::W_UV)) {
      words(std::string("The context of each head is multiplied by its matrix of W_UV") +
            (from_.given(Input::W_O) ? ", and these products, concatenated, by W_O." : "."));
      return lines({{name("Y"), {of_queries(from_.first(Output::output))}}});
    }
    std::vector<Math> formula = {name("C"), subscript(name("W"), name("O"))};
    std::vector<Equation> equations = {
        given(formula.back(), matrix_math(matrix_of(from_.input(Input::W_O))))};
    if (from_.given(Input::b_O)) {
      formula.push_back(sign("+"));
      formula.push_back(subscript(name("b"), name("O")));
      equations.push_back(given(formula.back(), matrix_math(matrix_of(from_.input(Input::b_O)))));
    }
    equations.push_back({name("Y"), {row(formula), of_queries(from_.first(Output::output))}});
    lines(std::move(equations));
  }

  void differentiate() {
    if (!from_.wants_gradients()) return;
    if (const std::string reason = unexplained_gradients(from_); !reason.empty()) {
      heading("Gradients");
      return words("Gradients are not explained for a job with " + reason + ".");
    }
    for (GradientStage& stage : gradient_stages(from_, largest_)) {
      heading(stage.heading);
      words(stage.words);
      for (Derivation& derivation : stage.derivations) lines(std::move(derivation.lines));
    }
  }

  void round_numbers() {
    for (auto& block : steps_.blocks) {
      auto* const derivation = std::get_if<Derivation>(&block);
      if (derivation == nullptr) continue;
      for (Equation& line : derivation->lines)
        for (Math& right : line.rights) math::set_decimals(right, *decimals_);
    }
  }

  const ExplainSource& from_;
  std::optional<int> decimals_;
  std::size_t query_;
  FormulaMatrix scores_;
  std::vector<std::size_t> largest_;  ///< keys
  std::string scores_letter_ = "s";   ///< of the last stage before softmax
  int number_ = 0;                    ///< of the last heading
  WorkedSteps steps_;
};

}  // namespace

std::vector<Request> explained_outputs(const Job& job) {
  const OutputSet available = outputs_among(available_outputs(job));
  std::vector<Request> outputs;
  for (const Output needed : kNeeded)
    if (available.contains(needed)) outputs.emplace_back(needed);
  return outputs;
}

WorkedSteps explain(const Job& job, const Inputs& in, const TensorMap& outputs,
                    const ExplainChoice& choice) {
  const ExplainSource source(job, in, outputs, choice);
  return Explainer(source, choice.decimals).steps();
}

WorkedSteps exercise(const Job& job, const Inputs& in, const TensorMap& outputs,
                     const ExplainChoice& choice) {
  const ExplainSource source(job, in, outputs, choice);
  return Explainer(source, choice.decimals).exercise();
}

}  // namespace attn
