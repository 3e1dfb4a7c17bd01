// Mistakes about the scores: scale, softcap and biases.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "attn/base/number_text.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/problem/mask.h"
#include "attn/problem/position_bias.h"
#include "attn/problem/score_scale.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

std::string scale_text(const Inputs& in) {
  if (in.scale.root_of > 0) return "1/sqrt(" + in_words(in.scale.root_of) + ")";
  return in.scale.multiplier == 1 ? "none" : in_words(in.scale.multiplier);
}

/// nullopt if the job has this scale.
Found with_scale(Variant& variant, const Inputs& in, double scale, const std::string& meaning) {
  if (in.options.score != Score::dot || !std::isfinite(scale) ||
      std::abs(scale / in.scale.factor() - 1) < 1e-9)
    return std::nullopt;
  variant.options.scale = {Scale::Kind::number, scale};
  return flag("--scale " + (scale == 1 ? "none" : in_words(scale)) +
                  (meaning.empty() ? "" : ", " + meaning),
              scale_text(in));
}

double negative(double x) { return -x; }

double root(std::size_t n) { return std::sqrt(static_cast<double>(n)); }

/// Hidden keys have the score -softcap instead of -inf.
Found softcap_of_hidden(Variant& variant, const Inputs& in) {
  constexpr std::size_t kMostElements = std::size_t{1} << 23;
  if (in.options.softcap == 0 || !hides_keys(variant, in) || in.E > 0 ||
      variant.has(Input::documents) || variant.has(Input::cu_seqlens_q))
    return std::nullopt;
  const Claim claim = words("the softcap applied after the mask: hidden keys have the score -" +
                            in_words(in.options.softcap));
  const Shape shape = shape_of_visible_keys(in);
  if (shape[0] * shape[1] * shape[2] > kMostElements / std::max<std::size_t>(1, in.S))
    return Claim{claim.kernel, "", false, true};
  const Tensor visible = visible_keys(in).reshaped(shape);
  // At least 256 times the softcap, where tanh is -1; exact in any dtype.
  const double of_hidden = -std::ldexp(1, std::ilogb(in.options.softcap) + 9);
  Tensor hidden(DType::f64, shape);
  const auto out = hidden.mutable_data<double>();
  const auto keys = visible.data<bool>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = keys[i] ? 0 : of_hidden;
  variant = without_masks(variant, in);
  add_bias(variant, hidden);
  Tensor bias = *variant.find(Input::bias);
  for (double& x : bias.mutable_data<double>())
    if (x < of_hidden / 2) x = of_hidden;
  variant.set(Input::bias, std::move(bias));
  variant.options.softcap_order = SoftcapOrder::after_mask;
  return claim;
}

}  // namespace

Found with_factors(Variant& variant, const Inputs& in, const std::vector<double>& of_heads) {
  if (in.options.score != Score::dot) return std::nullopt;
  const auto [least, most] = std::minmax_element(of_heads.begin(), of_heads.end());
  if (*least == *most) {
    const double scale = in.scale.factor() * of_heads[0];
    variant.options.scale = {Scale::Kind::number, scale};
    return flag("--scale " + six_digits(scale) + ", " + six_digits(of_heads[0]) +
                    " times that of the job: another scale, or one of Q or K",
                scale_text(in));
  }
  const Tensor* given = variant.find(Input::head_scale);
  Tensor factors(DType::f64, {in.H});
  for (std::size_t h = 0; h < in.H; ++h)
    factors.mutable_data<double>()[h] =
        of_heads[h] * (given != nullptr ? cast(*given, DType::f64).data<double>()[h] : 1);
  variant.set(Input::head_scale, factors);
  return words("scores of each head times a factor, from " + six_digits(*least) + " to " +
               six_digits(*most));
}

Found with_other_softcap(Variant& variant, const Inputs& in, double softcap) {
  if (in.options.softcap == 0 || softcap == in.options.softcap) return std::nullopt;
  variant.options.softcap = softcap;
  return flag("--softcap " + six_digits(softcap), six_digits(in.options.softcap));
}

Hypotheses scale_hypotheses() {
  return {
      {"scale.none", kAttention, change_by(with_scale, 1, "")},
      {"scale.1/D", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_scale(p, in, 1 / static_cast<double>(in.D), "1/" + in_words(in.D));
       }},
      {"scale.1/sqrt(D)", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_scale(p, in, 1 / root(in.D), "1/sqrt(" + in_words(in.D) + ")");
       }},
      {"scale.1/sqrt(H*D)", kAllHeads,
       [](Variant& p, const Inputs& in) {
         return with_scale(p, in, 1 / root(in.H * in.D),
                           "1/sqrt(" + in_words(in.H * in.D) + "), by the width of all heads");
       }},
      {"scale.1/sqrt(Dv)", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_scale(p, in, 1 / root(in.Dv),
                           "1/sqrt(" + in_words(in.Dv) + "), by that of the values");
       }},
      {"scale.1/sqrt(S)", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_scale(p, in, 1 / root(in.S),
                           "1/sqrt(" + in_words(in.S) + "), by the number of keys");
       }},
      {"scale.twice", kAttention,
       [](Variant& p, const Inputs& in) {
         const double scale = in.scale.factor();
         if (scale == 1 || in.scale.root_of == in.D) return Found();  // 1, or 1/D as above
         return with_scale(p, in, scale * scale, "the scale applied twice");
       }},
      {"scale.inverse", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_scale(p, in, 1 / in.scale.factor(), "divided by the scale");
       }},
      {"scale.exp2", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_scale(p, in, in.scale.factor() * std::numbers::ln2,
                           "2^x instead of e^x: log2(e) is missing");
       }},
      {"scale.log2e", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_scale(p, in, in.scale.factor() * std::numbers::log2e, "log2(e) too much");
       }},
      {"scale.head_scale_dropped", kAttention, dropped(Input::head_scale)},
  };
}

Hypotheses softcap_hypotheses() {
  return {
      {"softcap.dropped", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.softcap == 0) return std::nullopt;
         p.options.softcap = 0, p.options.softcap_order = SoftcapOrder::before_mask;
         return flag("without --softcap", "--softcap " + in_words(in.options.softcap));
       }},
      {"softcap.order", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.softcap == 0 || !has_bias(p)) return std::nullopt;
         const bool before = in.options.softcap_order == SoftcapOrder::before_mask;
         p.options.softcap_order = before ? SoftcapOrder::after_mask : SoftcapOrder::before_mask;
         return flag(before ? "--softcap-order after-mask" : "--softcap-order before-mask",
                     before ? "before-mask" : "after-mask");
       }},
      {"softcap.of_hidden", kAttention, softcap_of_hidden},
      {"softcap.not_divided", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.softcap == 0) return std::nullopt;
         p.options.scale = {Scale::Kind::number, in.scale.factor() * in.options.softcap};
         return words("a softcap c tanh(s) instead of c tanh(s / c)");
       }},
      {"softcap.not_multiplied", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.softcap == 0 || has_bias(p)) return std::nullopt;
         p.options.temperature *= in.options.softcap;
         return words("a softcap tanh(s / c) instead of c tanh(s / c)");
       }},
      {"softcap.before_scale", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.softcap == 0 || in.scale.factor() == 1 || has_bias(p)) return std::nullopt;
         p.options.scale = {Scale::Kind::none, 1};
         p.options.temperature /= in.scale.factor();
         return words("the softcap applied before the scale");
       }},
  };
}

Hypotheses bias_hypotheses() {
  return {
      {"bias.dropped", kAttention, dropped(Input::bias)},
      {"bias.rule_dropped", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!in.bias_rule) return std::nullopt;
         p.options.bias_rule.clear();
         return flag("without --bias-rule", "'" + in.options.bias_rule + "'");
       }},
      {"bias.rule_negated", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!in.bias_rule) return std::nullopt;
         p.options.bias_rule = "-(" + in.options.bias_rule + ")";
         return flag("--bias-rule '" + p.options.bias_rule + "'", "'" + in.options.bias_rule + "'");
       }},
      {"bias.negated", kAttention,
       each_of(Input::bias, negative, "the bias subtracted instead of added")},
      {"bias.transposed", kAttention, change_by(with_queries_as_keys, Input::bias)},
      {"bias.scaled", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_product(p, Input::bias, in.scale.factor(), "the bias multiplied by the scale");
       }},
      {"bias.head_0", kAllHeads,
       [](Variant& p, const Inputs&) -> Found {
         const Tensor* bias = p.find(Input::bias);
         if (bias == nullptr || bias->shape()[1] < 2) return std::nullopt;
         p.set(Input::bias, with_heads_from(*bias, {0}));
         return words("the bias of head 0 for all heads");
       }},
      {"bias.alibi_dropped", kAttention,
       [](Variant& p, const Inputs&) {
         return without(p, {Input::alibi_slopes}, "without ALiBi");
       }},
      {"bias.alibi_negated", kAttention,
       each_of(Input::alibi_slopes, negative, "ALiBi added instead of subtracted")},
      {"bias.alibi_of_more_heads", kAllHeads,
       [](Variant& p, const Inputs& in) -> Found {
         if (!p.has(Input::alibi_slopes)) return std::nullopt;
         const Tensor slopes = standard_slopes(2 * in.H);
         Tensor first(DType::f64, {in.H});
         std::copy_n(slopes.data<double>().begin(), in.H, first.mutable_data<double>().begin());
         p.set(Input::alibi_slopes, first);
         return words("ALiBi slopes of " + in_words(2 * in.H) + " heads", in_words(in.H));
       }},
      {"bias.alibi_from_1", kAllHeads,
       [](Variant& p, const Inputs& in) {
         return with_product(p, Input::alibi_slopes, std::exp2(8 / static_cast<double>(in.H)),
                             "ALiBi slopes of the previous head: the first is 1");
       }},
      {"bias.alibi_scaled", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_product(p, Input::alibi_slopes, in.scale.factor(),
                             "ALiBi multiplied by the scale");
       }},
      {"bias.alibi_signed", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         const std::string table = "slopes_of_alibi", name = std::string(kMaskTables) + table;
         const Tensor* slopes = p.find(Input::alibi_slopes);
         if (slopes == nullptr || is_causal(in) || p.tensors.contains(name)) return std::nullopt;
         std::string& rule = p.options.bias_rule;
         if (!rule.empty()) rule = "(" + rule + ")";
         rule += " - " + table + (slopes->rank() > 1 ? "[b, h]" : "[h]") + " * (q - k)";
         p.tensors.set(name, *slopes);
         p.erase({Input::alibi_slopes});
         return words("ALiBi of i - j instead of |i - j|");
       }},
      {"bias.relative_dropped", kAttention, dropped(Input::relative_bias)},
  };
}

}  // namespace attn
