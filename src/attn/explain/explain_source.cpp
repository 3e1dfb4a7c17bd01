#include "attn/explain/explain_source.h"

#include <algorithm>
#include <limits>

#include "attn/base/error.h"
#include "attn/problem/mask.h"
#include "attn/problem/score_scale.h"
#include "attn/tensor/rearrange.h"

namespace attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

ExplainSource::ExplainSource(const Job& job, const Inputs& in, const TensorMap& outputs,
                             const ExplainChoice& choice)
    : job_(job), outputs_(outputs), heads_(heads_of(Output::scores)) {
  if (at(outputs, Output::scores).size() == 0)
    fail_data("--explain: there are no queries or no keys");
  if (choice.head < 0 || static_cast<std::size_t>(choice.head) >= heads_)
    fail_usage("--explain-head " + std::to_string(choice.head) + ": expected 0 to " +
               std::to_string(heads_ - 1));
  head_ = static_cast<std::size_t>(choice.head);
  masked_scores_ = matrix(Output::masked_scores);
  if (has_doubtful_scores()) {
    const Tensor of_heads = visible_keys(in).at(0);
    visible_ = matrix_of(of_heads.at(of_heads.shape()[0] == 1 ? 0 : head_));
  }
  choose_query(choice);
}

bool ExplainSource::wants_gradients() const {
  return std::any_of(job_.outputs.begin(), job_.outputs.end(), is_of_gradients);
}

/// Heads of a (B, H, L, D), (H, L, D), (B, L, D) or (L, D) output.
std::size_t ExplainSource::heads_of(Output output) const {
  const Shape& shape = at(outputs_, output).shape();
  if (shape.size() == 4) return shape[1];
  return shape.size() == 3 && job_.options.heads > 0 ? shape[0] : 1;
}

/// The first row; if the job is causal, the last row that sees a key, because the first query sees
/// only one.
std::size_t ExplainSource::default_query() const {
  if (!job_.options.causal) return 0;
  for (std::size_t i = matrix(Output::scores).rows; i-- > 0;)
    if (!sees_none(i)) return i;
  return 0;
}

void ExplainSource::choose_query(const ExplainChoice& choice) {
  const std::vector<std::int64_t>& rows = job_.options.rows;
  const std::size_t count = matrix(Output::scores).rows;
  for (query_ = choice.query ? 0 : default_query(); query_ < count; ++query_) {
    query_index_ = rows.empty() ? static_cast<std::int64_t>(query_) : rows[query_];
    if (!choice.query || *choice.query == query_index_) return;
  }
  constexpr std::size_t kFew = 10;
  std::string expected = "0 to " + std::to_string(count - 1);
  if (!rows.empty()) expected = "one of the " + std::to_string(count) + " selected rows";
  if (!rows.empty() && count <= kFew) {
    expected = "a selected row:";
    for (const std::int64_t row : rows) expected += " " + std::to_string(row);
  }
  fail_usage("--explain-query " + std::to_string(*choice.query) + ": expected " + expected);
}

std::string ExplainSource::query_name() const {
  const auto count = static_cast<std::int64_t>(job_.tokens.size());
  const std::int64_t at = query_index_ < 0 ? query_index_ + count : query_index_;
  std::string name = "query " + std::to_string(query_index_);
  if (at >= 0 && at < count)
    name += " (" + token_label(job_.tokens[static_cast<std::size_t>(at)]) + ")";
  return name;
}

std::vector<std::string> ExplainSource::row_tokens() const {
  if (job_.options.rows.empty()) return job_.tokens;
  const auto count = static_cast<std::int64_t>(job_.tokens.size());
  std::vector<std::string> tokens;
  for (const std::int64_t row : job_.options.rows) {
    const std::int64_t at = row < 0 ? row + count : row;
    if (at < 0 || at >= count) return {};
    tokens.push_back(job_.tokens[static_cast<std::size_t>(at)]);
  }
  return tokens;
}

Math ExplainSource::of_queries(const FormulaMatrix& matrix) const {
  return matrix_math(matrix, {.rows = row_tokens(), .shown_rows = {query_}});
}

Math ExplainSource::of_keys(const FormulaMatrix& matrix,
                            const std::vector<std::size_t>& keys) const {
  return matrix_math(matrix, {.rows = key_tokens(), .shown_rows = keys});
}

Math ExplainSource::of_queries_and_keys(const FormulaMatrix& matrix,
                                        const std::vector<std::size_t>& keys) const {
  return matrix_math(matrix, {.rows = row_tokens(),
                              .columns = key_tokens(),
                              .shown_rows = {query_},
                              .shown_columns = keys});
}

FormulaMatrix ExplainSource::matrix(Output output) const {
  const Tensor& tensor = at(outputs_, output);
  const std::size_t head = head_ * heads_of(output) / heads_;
  if (tensor.rank() == 4) return matrix_of(tensor.at(0).at(head));
  return matrix_of(tensor.rank() == 3 ? tensor.at(job_.options.heads > 0 ? head : 0) : tensor);
}

FormulaMatrix ExplainSource::first(Output output) const { return first_item(at(outputs_, output)); }
FormulaMatrix ExplainSource::first(Input input) const {
  return first_item(at(job_.tensors, input));
}

FormulaMatrix ExplainSource::first_item(const Tensor& tensor) const {
  if (tensor.rank() != 3) return matrix_of(tensor);
  if (!job_.options.batch_second) return matrix_of(tensor.at(0));
  const Shape& shape = tensor.shape();  // (L, B, M)
  const FormulaMatrix all{shape[0], shape[1] * shape[2], tensor};
  return filled(shape[0], shape[2], [&](std::size_t i, std::size_t j) { return all.at(i, j); });
}

FormulaMatrix ExplainSource::joined_context() const {
  const Tensor& all = at(outputs_, Output::head_context);
  const Tensor heads = all.rank() == 4 ? all.at(0) : all;  // (H, L, Dv)
  const Shape& shape = heads.shape();
  return matrix_of(side_by_side(heads.reshaped({1, shape[0], shape[1], shape[2]})).at(0));
}

std::optional<double> ExplainSource::head_scale() const {
  if (!given(Input::head_scale)) return std::nullopt;
  return matrix_of(input(Input::head_scale))[head_];
}

bool ExplainSource::adds_to_scores() const {
  const auto adds = [&](Input bias) {
    return given(bias) && is_added(bias, input(bias)) &&
           (bias != Input::key_indices || options().duplicates == Duplicates::count);
  };
  return options().alibi || !options().bias_rule.empty() ||
         std::any_of(kBiasInputs.begin(), kBiasInputs.end(), adds);
}

/// Whether some scores may be minus infinity although their key is seen.
bool ExplainSource::has_doubtful_scores() const {
  const FormulaMatrix before = matrix(Output::scaled_scores);
  const bool adds = adds_to_scores();
  std::size_t k = 0;
  while (k < before.size() &&
         !(masked_scores_[k] == -kInfinity && (adds || before[k] == -kInfinity)))
    ++k;
  return k < before.size();
}

bool ExplainSource::hides(std::size_t row, std::size_t key) const {
  return visible_ ? visible_->at(row, key) == 0 : masked_scores_.at(row, key) == -kInfinity;
}

Tensor ExplainSource::marks_of_hidden() const {
  if (!visible_) return masked_scores_.elements;
  return filled(visible_->rows, visible_->columns,
                [&](std::size_t i, std::size_t j) { return hides(i, j) ? -kInfinity : 0; })
      .elements;
}

bool ExplainSource::sees_none(std::size_t row) const {
  std::size_t j = 0;
  while (j < masked_scores_.columns && hides(row, j)) ++j;
  return j == masked_scores_.columns;
}

std::optional<FormulaMatrix> ExplainSource::weights_of(Output weight_heads) const {
  const Input whole = *row_of(weight_heads).source;
  if (!given(whole)) return std::nullopt;
  if (!has(weight_heads) || output(weight_heads).rank() != 3) return matrix_of(input(whole));
  const Tensor& heads = output(weight_heads);
  return matrix_of(heads.at(head_ * heads.shape()[0] / heads_));
}

std::optional<FormulaMatrix> ExplainSource::bias_of(Input bias, std::size_t width) const {
  if (!given(bias)) return std::nullopt;
  const Tensor& all = input(bias);
  if (width == 0) return FormulaMatrix{1, 0, all};
  const std::size_t parts = all.size() / width;  // one per head
  return matrix_of(all.reshaped({parts, width}).at(head_ * parts / heads_));
}

using math::fraction;
using math::name;
using math::number;
using math::row;
using math::sign;

bool plain_vectors(const ExplainSource& source) {
  for (const Input input : {Input::q_norm, Input::k_norm, Input::cos})
    if (source.given(input)) return false;
  return source.options().query_scale == QueryScale{} && source.options().clip_qkv == 0 &&
         source.options().qk_norm == QkNorm::none &&
         source.options().rotary.kind == Rotary::Kind::none;
}

bool plain_softmax(const ExplainSource& source) {
  if (source.given(Input::sinks)) return false;
  const Options& options = source.options();
  return options.normaliser == Normaliser::softmax && options.temperature == 1 &&
         options.softmax_precision == SoftmaxPrecision::automatic;
}

std::vector<Math> score_formula(const Options& options) {
  if (options.score == Score::dot)
    return {row({name("Q"), math::superscript(name("K"), name("T"))})};
  if (options.score == Score::cosine)
    return {row({sign("cos"), sign("("), name("Q"), sign(","), name("K"), sign(")")})};
  return {};
}

Math over_o_scale(const Math& value, const Options& options) {
  return options.o_scale == 1 ? value : fraction(value, number(options.o_scale));
}

namespace {

Math with_scale(const Math& value, double width, const Options& options) {
  if (divides_by_root(options)) return fraction(value, math::root(number(width)));
  if (options.scale.kind != Scale::Kind::number) return value;
  return row({math::factor(options.scale.number), sign("·"), value});
}

}  // namespace

Math scaled(const Math& value, double width, const Options& options,
            std::optional<double> head_scale) {
  Math product = with_scale(value, width, options);
  if (head_scale) product = row({std::move(product), sign("·"), math::factor(*head_scale)});
  return options.softcap == 0 || caps_after_mask(options) ? product : capped(product, options);
}

Math capped(const Math& value, const Options& options) {
  const Math cap = number(options.softcap);
  return row({cap, sign("·"), name("tanh"), math::parentheses(fraction(value, cap))});
}

}  // namespace attn
