#include "attn/explain/explain_rules.h"

#include "attn/core/score_scale.h"

namespace attn {

using math::fraction;
using math::name;
using math::number;
using math::row;
using math::sign;

bool plain_vectors(const ExplainSource& source) {
  for (const Input input : {Input::q_norm, Input::k_norm, Input::cos})
    if (source.given(input)) return false;
  return source.options().qk_norm == QkNorm::none &&
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

namespace {

Math with_scale(const Math& value, double width, const Options& options) {
  if (divides_by_root(options)) return fraction(value, math::root(number(width)));
  if (options.scale.kind != Scale::Kind::number) return value;
  return row({math::factor(options.scale.number), sign("·"), value});
}

}  // namespace

Math scaled(const Math& value, double width, const Options& options) {
  const Math product = with_scale(value, width, options);
  if (options.softcap == 0 || options.softcap_order == SoftcapOrder::after_mask) return product;
  const Math cap = number(options.softcap);
  return row({cap, sign("·"), name("tanh"), sign("("), fraction(product, cap), sign(")")});
}

}  // namespace attn
