#include "attn/diagnose/backward_hypotheses.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "attn/diagnose/changes.h"

namespace attn {
namespace {

using C = BackwardChange;

bool is_any(const Variant&, const Inputs&) { return true; }
bool is_scaled(const Variant&, const Inputs& in) { return in.scale.factor() != 1; }
bool is_capped(const Variant&, const Inputs& in) { return in.options.softcap != 0; }
bool is_grouped(const Variant&, const Inputs& in) { return in.G != in.H; }
bool is_biased(const Variant& variant, const Inputs&) { return has_bias(variant); }

/// A hypothesis that changes nothing but what `changes` says.
struct BackwardRow {
  const char* id;
  BackwardChanges changes;
  bool (*applies)(const Variant& variant, const Inputs& in);
  const char* kernel;
};

std::vector<BackwardRow> backward_rows(bool are_of_delta) {
  // clang-format off
  if (are_of_delta) return {
    {"backward.delta_scaled", {C::scaled_delta}, is_scaled, "delta times the scale"},
    {"backward.delta_twice", {C::twice}, is_any, "delta added up twice"},
    {"backward.delta_of_f16", {C::of_f16_context}, is_any, "delta of the context rounded to float16"},
    {"backward.delta_of_bf16", {C::of_bf16_context}, is_any, "delta of the context rounded to bfloat16"},
    {"backward.delta_minus_lse", {C::minus_of_logsumexp}, is_any, "delta less grad_logsumexp"},
  };
  return {
    {"backward.row_sums_dropped", {C::no_row_sums}, is_any, "dS = P * dP, without the row sums delta"},
    {"backward.row_sums_twice", {C::double_row_sums}, is_any, "dS = P * (dP - 2 delta)"},
    {"backward.row_sums_added", {C::added_row_sums}, is_any, "dS = P * (dP + delta)"},
    {"backward.not_normalised", {C::no_logsumexp}, is_any, "weights exp(score) in the backward pass, not divided by their sum"},
    {"backward.maximum_as_logsumexp", {C::maximum_as_logsumexp}, is_any, "weights exp(score - maximum) in the backward pass, not divided by their sum"},
    {"backward.logsumexp_as_base_2", {C::logsumexp_as_base_2}, is_any, "the natural logsumexp taken for one of base 2 in the backward pass"},
    {"backward.logsumexp_from_base_2", {C::logsumexp_from_base_2}, is_any, "the logsumexp of base 2 taken for a natural one in the backward pass"},
    {"backward.dQ_unscaled", {C::unscaled_dQ}, is_scaled, "dQ without the scale"},
    {"backward.dK_unscaled", {C::unscaled_dK}, is_scaled, "dK without the scale"},
    {"backward.unscaled", {C::unscaled_dQ, C::unscaled_dK}, is_scaled, "dQ and dK without the scale"},
    {"backward.dQ_scaled_twice", {C::scaled_twice_dQ}, is_scaled, "the scale applied twice to dQ"},
    {"backward.dK_scaled_twice", {C::scaled_twice_dK}, is_scaled, "the scale applied twice to dK"},
    {"backward.scaled_twice", {C::scaled_twice_dQ, C::scaled_twice_dK}, is_scaled, "the scale applied twice to dQ and dK"},
    {"backward.twice", {C::twice}, is_any, "the gradient added up twice"},
    {"backward.softcap_dropped", {C::no_softcap}, is_capped, "a backward pass without the derivative of the softcap"},
    {"backward.softcap_not_squared", {C::linear_softcap}, is_capped, "the derivative of the softcap 1 - y / c instead of 1 - (y / c)^2"},
    {"backward.group_first", {C::first_of_group}, is_grouped, "the first query head of each group instead of their sum"},
    {"backward.group_last", {C::last_of_group}, is_grouped, "the last query head of each group instead of their sum"},
    {"backward.group_mean", {C::mean_of_group}, is_grouped, "the mean over the query heads of each group instead of their sum"},
    {"backward.group_tiled", {C::tiled_groups}, is_grouped, "query head h added to key/value head h % G instead of h // (H / G)"},
    {"backward.bias_first", {C::first_of_broadcast}, is_biased, "only the first index of the axes over which the gradient of the bias is a sum"},
    {"backward.bias_last", {C::last_of_broadcast}, is_biased, "only the last index of the axes over which the gradient of the bias is a sum"},
    {"backward.bias_mean", {C::mean_of_broadcast}, is_biased, "the mean over the axes over which the gradient of the bias is a sum"},
    {"backward.rotary_dropped", {C::not_rotated_back}, is_any, "gradients with respect to the rotated queries and keys, not rotated back"},
    {"backward.rotary_sign", {C::rotated_again}, is_any, "gradients rotated by the positive angles instead of the negative ones"},
    {"backward.of_queries", {C::of_queries}, is_any, "grad_Q"},
    {"backward.of_keys", {C::of_keys}, is_any, "grad_K"},
    {"backward.of_values", {C::of_values}, is_any, "grad_V"},
  };
  // clang-format on
}

/// With one kind of mask, this is one of hypotheses().
Found masks_dropped(Variant& variant, const Inputs& in) {
  const Window& window = in.options.window;
  int kinds = in.options.causal ? 1 : 0;
  if (window.left >= 0 || window.right > 0) ++kinds;
  for (const Input input : {Input::mask, Input::key_mask, Input::key_lengths, Input::key_starts})
    if (const Tensor* mask = variant.find(input); mask != nullptr && !is_float(mask->dtype())) {
      variant.erase({input});
      ++kinds;
    }
  variant.options.causal = false;
  variant.options.window = {};
  variant.backward.insert(C::only);
  return kinds < 2 ? Found() : words("without any mask in the backward pass only");
}

Hypotheses backward_hypotheses(bool are_of_delta) {
  Hypotheses all;
  for (const BackwardRow& row : backward_rows(are_of_delta))
    all.push_back({row.id, kAttention, [row](Variant& variant, const Inputs& in) -> Found {
                     if (!row.applies(variant, in)) return std::nullopt;
                     variant.backward.insert(row.changes.begin(), row.changes.end());
                     return words(row.kernel);
                   }});
  all.push_back({"backward.masks_dropped", kAttention, masks_dropped});
  return all;
}

/// Those that change queries, keys or values, or what follows, have no gradient by the same inputs.
bool keeps_operands(const Hypothesis& hypothesis) {
  constexpr std::array<std::string_view, 13> kGroups = {
      "scale",   "causal", "window",      "softcap", "mask", "bias",  "sink",
      "dropout", "chunk",  "sink_tokens", "prefix",  "tree", "blocks"};
  return !hypothesis.projects() &&
         (std::find(kGroups.begin(), kGroups.end(), hypothesis.group()) != kGroups.end() ||
          hypothesis.id == "softmax.temperature_dropped");
}

/// Those that multiply the sinks by a factor.
bool scales_sinks(const Hypothesis& hypothesis) {
  constexpr std::array<std::string_view, 3> kIds = {"sink.exp2", "sink.log2e", "sink.scaled"};
  return std::find(kIds.begin(), kIds.end(), hypothesis.id) != kIds.end();
}

}  // namespace

Hypotheses gradient_hypotheses(const Request& of) {
  using Pass = Hypothesis::Pass;
  const bool is_delta = of == Request{Output::delta};
  const bool of_sinks = of == Request{Gradient{Input::sinks}};
  Hypotheses all = backward_hypotheses(is_delta);
  Hypotheses of_projection;
  for (Hypothesis hypothesis : hypotheses()) {
    if (hypothesis.projects()) of_projection.push_back(hypothesis);
    if (!keeps_operands(hypothesis)) continue;
    for (const Pass pass :
         {Pass::both, Pass::both_chained, Pass::backward, Pass::backward_with_row_sums}) {
      if (pass == Pass::backward_with_row_sums && hypothesis.group() == "scale") continue;
      if (pass == Pass::both_chained && !(of_sinks && scales_sinks(hypothesis))) continue;
      // delta is the row sums, and without dropout those of both passes.
      if (is_delta && (pass == Pass::backward_with_row_sums ||
                       (pass == Pass::backward && hypothesis.group() == "dropout")))
        continue;
      hypothesis.pass = pass;
      all.push_back(hypothesis);
    }
  }
  all.insert(all.end(), of_projection.begin(), of_projection.end());
  return all;
}

Found Hypothesis::apply(Variant& variant, const Inputs& in) const {
  Found claim = change(variant, in);
  if (!claim || pass == Pass::both) return claim;
  if (pass == Pass::both_chained) {
    variant.backward.insert(C::chained_sinks);
    claim->kernel += ", and their derivative by the same factor";
    return claim;
  }
  variant.backward.insert(C::only);
  if (group() == "sink") variant.backward.insert(C::own_logsumexp);
  if (pass == Pass::backward_with_row_sums) variant.backward.insert(C::own_row_sums);
  const std::string of_pass = pass == Pass::backward_with_row_sums ? ", with its own row sums" : "";
  const std::size_t what = std::min(claim->kernel.find(": "), claim->kernel.size());
  claim->kernel.insert(what, " in the backward pass only" + of_pass);
  claim->is_flag = false;
  return claim;
}

std::string Hypothesis::full_id() const {
  const bool is_of_both = pass == Pass::both || pass == Pass::both_chained;
  return (is_of_both ? "" : "backward.") + id +
         (pass == Pass::both_chained             ? "_chained"
          : pass == Pass::backward_with_row_sums ? "_with_row_sums"
                                                 : "");
}

}  // namespace attn
