#include "attn/core/option_shapes.h"

namespace attn {
namespace {

/// A problem if `subject` was given and `holds` is false.
struct Rule {
  std::string_view subject;  ///< an input, or the key of an option
  bool given, holds;
  const char* expected;
  const char* found = "another";
};

void check(const Rule& rule, AxisLengths& axes) {
  if (rule.given && !rule.holds)
    axes.problem(
        {.subject = std::string(rule.subject), .expected = rule.expected, .found = rule.found});
}

void check_rotary(const TensorMap& tensors, const Rotary& rotary, AxisLengths& axes) {
  using Scaling = Rotary::Scaling;
  const bool on = rotary.kind != Rotary::Kind::none, tables = contains(tensors, Input::cos);
  Rotary bare;
  bare.kind = rotary.kind;
  const Rule rules[] = {
      {"rotary", !on && !(rotary == bare), false, "kind half or interleaved for its other settings",
       "none"},
      {name_of(Input::cos), tables, on, "rotary.kind half or interleaved"},
      {name_of(Input::cos), tables, rotary == bare,
       "either tables or rotary.width, base and scaling", "both"},
      {name_of(Input::position_ids), contains(tensors, Input::position_ids), on,
       "rotary.kind half or interleaved"},
      {name_of(Input::key_position_ids), contains(tensors, Input::key_position_ids), on,
       "rotary.kind half or interleaved"},
      {"rotary.factor", rotary.factor != 1, rotary.scaling != Scaling::none, "rotary.scaling"},
      {"rotary.original_length", rotary.original_length != 0,
       rotary.scaling == Scaling::yarn || rotary.scaling == Scaling::llama3,
       "rotary.scaling yarn or llama3"},
      {"rotary.scaling", rotary.scaling == Scaling::yarn || rotary.scaling == Scaling::llama3,
       rotary.original_length > 0, "rotary.original_length beside yarn and llama3", "none"},
      {"rotary.low_frequency_factor",
       rotary.low_frequency_factor != 1 || rotary.high_frequency_factor != 4,
       rotary.scaling == Scaling::llama3, "rotary.scaling llama3"},
      {"rotary.low_frequency_factor", true,
       rotary.low_frequency_factor < rotary.high_frequency_factor,
       "less than rotary.high_frequency_factor"},
      {"rotary.beta_fast", rotary.beta_fast != 32 || rotary.beta_slow != 1,
       rotary.scaling == Scaling::yarn, "rotary.scaling yarn"},
      {"rotary.attention_factor", rotary.attention_factor != 0, rotary.scaling == Scaling::yarn,
       "rotary.scaling yarn"},
  };
  for (const Rule& rule : rules) check(rule, axes);
  for (const double number : {rotary.base, rotary.factor, rotary.beta_fast, rotary.beta_slow})
    if (!(number > 0))
      axes.problem(
          {.subject = "rotary", .expected = "base, factor and betas over 0", .found = "another"});
}

void check_score(const TensorMap& tensors, Score score, AxisLengths& axes) {
  const bool pairs = score == Score::additive || score == Score::concat;
  const bool product = score == Score::general || score == Score::concat;
  const Rule rules[] = {
      {name_of(Input::W_score), contains(tensors, Input::W_score), product,
       "score general or concat"},
      {name_of(Input::W_score), product, contains(tensors, Input::W_score),
       "weights for score general and concat", "none"},
      {name_of(Input::W_score_Q), contains(tensors, Input::W_score_Q), score == Score::additive,
       "score additive"},
      {name_of(Input::W_score_K), contains(tensors, Input::W_score_K), score == Score::additive,
       "score additive"},
      {name_of(Input::b_score), contains(tensors, Input::b_score), pairs,
       "score additive or concat"},
      {name_of(Input::v_score), contains(tensors, Input::v_score), pairs,
       "score additive or concat"},
      {name_of(Input::g_score), contains(tensors, Input::g_score), pairs,
       "score additive or concat"},
  };
  for (const Rule& rule : rules) check(rule, axes);
}

}  // namespace

void check_contradictions(const TensorMap& tensors, const Options& options, AxisLengths& axes) {
  const auto given = [&](Input input) { return contains(tensors, input); };
  const bool softmax = options.normaliser == Normaliser::softmax;
  const bool by_rows = options.softmax_axis == SoftmaxAxis::keys;
  const bool relative = given(Input::relative_bias);
  const Position bare, &position = options.position;
  const bool positions = position.base != bare.base || position.first != bare.first ||
                         position.exponent != bare.exponent || position.last_column_zero;
  const bool top_k = options.normaliser == Normaliser::top_k;
  const Tensor* rows = find(tensors, given(Input::Q) ? Input::Q : Input::embeddings);
  const std::size_t rank = rows == nullptr ? 0 : rows->rank();
  const Rule rules[] = {
      {"batch_axis", options.batch_second && rank > 0, rank == 3, "3-D tensors"},
      {"short_mask", options.short_mask == ShortMask::hide, given(Input::mask), "a mask", "none"},
      {"softcap_order", options.softcap_order == SoftcapOrder::after_mask, options.softcap > 0,
       "a softcap beside it", "none"},
      {name_of(Input::q_norm), given(Input::q_norm), options.qk_norm != QkNorm::none,
       "qk_norm rms or l2"},
      {name_of(Input::k_norm), given(Input::k_norm), options.qk_norm != QkNorm::none,
       "qk_norm rms or l2"},
      {"qk_norm_epsilon", options.qk_norm_epsilon != 0, options.qk_norm != QkNorm::none,
       "qk_norm rms or l2"},
      {"alibi", options.alibi, !given(Input::alibi_slopes),
       "either the standard slopes or alibi_slopes", "both"},
      {"relative", !(options.relative == RelativeBias{}), relative, "relative_bias", "none"},
      {name_of(Input::sinks), given(Input::sinks), softmax && by_rows,
       "normaliser softmax over keys"},
      {"top_k", options.top_k > 0, top_k, "normaliser top_k"},
      {"normaliser", top_k, options.top_k > 0, "top_k, the number of keys, beside it", "none"},
      {"position", positions, position.kind != Position::Kind::none,
       "kind sinusoidal for its other settings", "none"},
      {"temperature", true, options.temperature > 0, "a number over 0"},
  };
  for (const Rule& rule : rules) check(rule, axes);
  check_rotary(tensors, options.rotary, axes);
  check_score(tensors, options.score, axes);
}

}  // namespace attn
