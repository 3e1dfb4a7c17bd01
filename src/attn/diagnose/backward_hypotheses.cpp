#include "attn/diagnose/backward_hypotheses.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/core/attention.h"
#include "attn/core/derivatives.h"
#include "attn/core/formula.h"
#include "attn/core/gemm.h"
#include "attn/core/grad_ops.h"
#include "attn/core/layout.h"
#include "attn/core/score.h"
#include "attn/core/tensor_ops.h"
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
  std::string_view id;
  std::array<C, 2> changes;  ///< may be the same
  bool (*applies)(const Variant& variant, const Inputs& in);
  const char* kernel;
};

// clang-format off
constexpr BackwardRow kBackwardRows[] = {
    {"backward.row_sums_dropped", {C::no_row_sums, C::no_row_sums}, is_any, "dS = P * dP, without the row sums delta"},
    {"backward.dQ_unscaled", {C::unscaled_dQ, C::unscaled_dQ}, is_scaled, "dQ without the scale"},
    {"backward.dK_unscaled", {C::unscaled_dK, C::unscaled_dK}, is_scaled, "dK without the scale"},
    {"backward.unscaled", {C::unscaled_dQ, C::unscaled_dK}, is_scaled, "dQ and dK without the scale"},
    {"backward.dQ_scaled_twice", {C::scaled_twice_dQ, C::scaled_twice_dQ}, is_scaled, "the scale applied twice to dQ"},
    {"backward.dK_scaled_twice", {C::scaled_twice_dK, C::scaled_twice_dK}, is_scaled, "the scale applied twice to dK"},
    {"backward.scaled_twice", {C::scaled_twice_dQ, C::scaled_twice_dK}, is_scaled, "the scale applied twice to dQ and dK"},
    {"backward.twice", {C::twice, C::twice}, is_any, "the gradient added up twice"},
    {"backward.softcap_dropped", {C::no_softcap, C::no_softcap}, is_capped, "the derivative of the softcap missing"},
    {"backward.group_first", {C::first_of_group, C::first_of_group}, is_grouped, "the first query head of each group instead of their sum"},
    {"backward.group_last", {C::last_of_group, C::last_of_group}, is_grouped, "the last query head of each group instead of their sum"},
    {"backward.group_mean", {C::mean_of_group, C::mean_of_group}, is_grouped, "the mean over the query heads of each group instead of their sum"},
    {"backward.group_tiled", {C::tiled_groups, C::tiled_groups}, is_grouped, "query head h added to key/value head h % G instead of h // (H / G)"},
    {"backward.bias_first", {C::first_of_broadcast, C::first_of_broadcast}, is_biased, "only the first index of the axes over which the gradient of the bias is a sum"},
    {"backward.bias_last", {C::last_of_broadcast, C::last_of_broadcast}, is_biased, "only the last index of the axes over which the gradient of the bias is a sum"},
    {"backward.bias_mean", {C::mean_of_broadcast, C::mean_of_broadcast}, is_biased, "the mean over the axes over which the gradient of the bias is a sum"},
    {"backward.rotary_dropped", {C::not_rotated_back, C::not_rotated_back}, is_any, "gradients by the rotated queries and keys, not rotated back"},
    {"backward.rotary_sign", {C::rotated_again, C::rotated_again}, is_any, "gradients rotated by the positive angles instead of the negative ones"},
    {"backward.of_queries", {C::of_queries, C::of_queries}, is_any, "grad_Q"},
    {"backward.of_keys", {C::of_keys, C::of_keys}, is_any, "grad_K"},
    {"backward.of_values", {C::of_values, C::of_values}, is_any, "grad_V"},
};
// clang-format on

template <std::size_t row>
Found changed_by(Variant& variant, const Inputs& in) {
  if (!kBackwardRows[row].applies(variant, in)) return std::nullopt;
  variant.backward.insert(kBackwardRows[row].changes.begin(), kBackwardRows[row].changes.end());
  return words(kBackwardRows[row].kernel);
}

/// With one kind of mask, this is one of hypotheses().
Found masks_dropped(Variant& variant, const Inputs& in) {
  const Window& window = in.options.window;
  int kinds = in.options.causal ? 1 : 0;
  if (window.left >= 0 || window.right > 0) ++kinds;
  for (const Input input : {Input::mask, Input::key_mask, Input::key_lengths})
    if (const Tensor* mask = variant.find(input); mask != nullptr && !is_float(mask->dtype())) {
      variant.erase({input});
      ++kinds;
    }
  variant.options.causal = false;
  variant.options.window = {};
  variant.backward.insert(C::only);
  return kinds < 2 ? Found() : words("without any mask in the backward pass only");
}

constexpr auto kAttentionStage = Hypothesis::Stage::attention;

template <std::size_t... rows>
std::vector<Hypothesis> backward_hypotheses(std::index_sequence<rows...>) {
  return {{kBackwardRows[rows].id, kAttentionStage, changed_by<rows>}...,
          {"backward.masks_dropped", kAttentionStage, masks_dropped}};
}

/// Those that change queries, keys or values, or what follows, have no gradient by the same inputs.
bool keeps_operands(const Hypothesis& hypothesis) {
  constexpr std::array<std::string_view, 8> kGroups = {"scale", "causal", "window", "softcap",
                                                       "mask",  "bias",   "sink",   "dropout"};
  return hypothesis.stage == kAttentionStage &&
         (std::find(kGroups.begin(), kGroups.end(), hypothesis.group()) != kGroups.end() ||
          hypothesis.id == "softmax.temperature_dropped");
}

Tensor times(Tensor x, double factor) {
  for (double& value : x.mutable_data<double>()) value *= factor;
  return x;
}

bool is_same(const Variant& a, const Variant& b) {
  return a.options == b.options && a.row_change == b.row_change &&
         a.tensors.size() == b.tensors.size() &&
         std::all_of(a.tensors.begin(), a.tensors.end(), [&](const TensorMap::Entry& entry) {
           const Tensor* other = b.tensors.find(entry.first);
           return other != nullptr && other->raw() == entry.second.raw();
         });
}

/// Sums over the keys, of elements with a weight.
std::vector<double> row_sums(const Tensor& weights, const Tensor& dP) {
  const std::size_t S = weights.shape()[3];
  std::vector<double> sums(S == 0 ? 0 : weights.size() / S);
  for (std::size_t i = 0; i < weights.size(); ++i)
    sums[i / S] += chained(weights.data<double>()[i], dP.data<double>()[i]);
  return sums;
}

/// x (B, H, N, D) of query heads, as derivatives by key/value heads (B, G, N, D).
Tensor by_kv_heads(const Tensor& x, std::size_t G, const BackwardChanges& changes) {
  const std::size_t B = x.shape()[0], H = x.shape()[1], size = x.shape()[2] * x.shape()[3];
  const std::size_t of_group = H / G;
  Tensor result(DType::f64, {B, G, x.shape()[2], x.shape()[3]});
  for (std::size_t b = 0; b < B; ++b)
    for (std::size_t h = 0; h < H; ++h) {
      const std::size_t k = h % of_group;
      if ((changes.contains(C::first_of_group) && k != 0) ||
          (changes.contains(C::last_of_group) && k + 1 != of_group))
        continue;
      const std::size_t g = changes.contains(C::tiled_groups) ? h % G : h / of_group;
      const double factor =
          changes.contains(C::mean_of_group) ? 1 / static_cast<double>(of_group) : 1;
      const auto from = x.data<double>().subspan((b * H + h) * size, size);
      const auto to = result.mutable_data<double>().subspan((b * G + g) * size, size);
      for (std::size_t i = 0; i < size; ++i) to[i] += factor * from[i];
    }
  return result;
}

/// g (B, H, R, S) with 0 where it does not contribute to the gradient of a bias.
Tensor of_bias(Tensor g, const Shape& bias, const BackwardChanges& changes) {
  const bool first = changes.contains(C::first_of_broadcast),
             last = changes.contains(C::last_of_broadcast);
  if (bias.size() != 4) return g;  // slopes and tables
  if (changes.contains(C::mean_of_broadcast))
    for (std::size_t axis = 0; axis < 4; ++axis) {
      const double share = 1 / static_cast<double>(g.shape()[axis]);
      if (bias[axis] == 1) g = times(std::move(g), share);
    }
  if (!first && !last) return g;
  const Shape shape = g.shape();
  const auto out = g.mutable_data<double>();
  for (std::size_t i = 0; i < out.size(); ++i)
    for (std::size_t axis = 4, rest = i; axis-- > 0; rest /= shape[axis])
      if (bias[axis] == 1 && rest % shape[axis] != (first ? 0 : shape[axis] - 1)) out[i] = 0;
  return g;
}

}  // namespace

std::vector<Hypothesis> gradient_hypotheses() {
  using Pass = Hypothesis::Pass;
  std::vector<Hypothesis> all =
      backward_hypotheses(std::make_index_sequence<std::size(kBackwardRows)>());
  std::vector<Hypothesis> of_projection;
  for (Hypothesis hypothesis : hypotheses()) {
    if (hypothesis.stage != kAttentionStage) of_projection.push_back(hypothesis);
    if (!keeps_operands(hypothesis)) continue;
    for (const Pass pass : {Pass::both, Pass::backward, Pass::backward_with_row_sums}) {
      if (pass != Pass::both && hypothesis.group() == "scale") continue;
      hypothesis.pass = pass;
      all.push_back(hypothesis);
    }
  }
  all.insert(all.end(), of_projection.begin(), of_projection.end());
  return all;
}

std::optional<Claim> Hypothesis::apply(Variant& variant, const Inputs& in) const {
  std::optional<Claim> claim = change(variant, in);
  if (!claim || pass == Pass::both) return claim;
  variant.backward.insert(C::only);
  if (group() == "sink") variant.backward.insert(C::own_logsumexp);
  if (pass == Pass::backward_with_row_sums) variant.backward.insert(C::own_row_sums);
  claim->kernel += " in the backward pass only";
  if (pass == Pass::backward_with_row_sums) claim->kernel += ", with its own row sums";
  claim->is_flag = false;
  return claim;
}

std::string Hypothesis::full_id() const {
  return (pass == Pass::both ? "" : "backward.") + std::string(id) +
         (pass == Pass::backward_with_row_sums ? "_with_row_sums" : "");
}

/// The formula with everything from scores to head_context as one operation, and mistakes.
class BackwardPass::Ops : public GradOps {
 public:
  /// All must outlive this object. `job` has the row sums. `of_kept`: the derivative by the weights
  /// after dropout, which is that of the job in all variants.
  Ops(const Inputs& given, Input wanted, const Forward& job, const Forward& changed,
      const BackwardChanges& changes, std::optional<Tensor>& of_kept)
      : GradOps(given, {wanted}, false),
        given_(given),
        job_(job),
        changed_(changed),
        changes_(changes),
        of_kept_(of_kept),
        of_logsumexp_(given.B * given.H * given.rows.size()) {
    if (const std::optional<Tensor>& seed = given[Input::grad_logsumexp]) {
      const Tensor natural = exact_.in_lse_base(cast(*seed, DType::f64));
      std::copy_n(natural.data<double>().begin(), natural.size(), of_logsumexp_.begin());
    }
  }

  Traced rotated_queries(const Traced& x, const Operand& cos, const Operand& sin) {
    return rotated(x, GradOps::rotated_queries(x, cos, sin), [=, this](const Tensor& g) {
      return exact_.rotated_queries(g, value_of(cos), value_of(sin));
    });
  }
  Traced rotated_keys(const Traced& x, const Operand& cos, const Operand& sin) {
    return rotated(x, GradOps::rotated_keys(x, cos, sin), [=, this](const Tensor& g) {
      return exact_.rotated_keys(g, value_of(cos), value_of(sin));
    });
  }

  Traced attended(const Traced& queries, const Traced& keys, const Traced& values,
                  const Biases<Traced>& biases, const Operand& sinks) {
    std::vector<Operand> operands = {queries, keys, values, sinks};
    for (const auto& [input, bias] : biases) operands.emplace_back(bias);
    return record(job_.context, operands, [=, this](const Tensor& g) {
      if (!of_kept_) of_kept_ = matmul(g, values.value, Second::transposed, "gradients");
      const bool owns_logsumexp = changes_.contains(C::own_logsumexp);
      const Tensor& logsumexp = owns_logsumexp ? changed_.logsumexp : job_.logsumexp;
      const bool is_job = &changed_ == &job_;
      const Tensor P = is_job ? job_.weights() : changed_.weights(logsumexp);
      tape_.pass(values, [&] {
        const Tensor A = given_[Input::dropout_mask] ? dropped_by(P, changed_) : P;
        return by_kv_heads(transposed_product(A, g), values.value.shape()[1], changes_);
      });
      if (operands_are_only_values(queries, keys, biases, sinks)) return;
      const Tensor dP = of_weights(*of_kept_, changed_);
      if (!job_.row_sums) job_.row_sums = row_sums(job_.weights(), of_weights(*of_kept_, job_));
      const std::vector<double> sums =
          changes_.contains(C::own_row_sums) ? row_sums(P, dP) : *job_.row_sums;
      if (sinks) tape_.pass(*sinks, [&] { return of_sinks(*sinks, logsumexp, sums); });
      const Options& options = changed_.in.options;
      const bool is_capped_last = options.softcap_order == SoftcapOrder::after_mask;
      Tensor ds = of_scores(P, dP, sums);
      if (is_capped_last) ds = before_softcap(std::move(ds), changed_.masked);
      for (const auto& [input, bias] : biases)
        tape_.pass(bias, [&, input = input, bias = bias] {
          return bias_derivative(of_bias(ds, bias.value.shape(), changes_), {input, bias.value},
                                 given_);
        });
      if (!is_capped_last) ds = before_softcap(std::move(ds), changed_.scaled);
      if (const std::optional<Tensor>& scales = changed_.in[Input::head_scale])
        ds = times_by_head(ds, *scales);
      tape_.pass(queries, [&] {
        return chained_product(scaled(ds, C::unscaled_dQ, C::scaled_twice_dQ), keys.value);
      });
      tape_.pass(keys, [&] {
        return by_kv_heads(
            transposed_product(scaled(ds, C::unscaled_dK, C::scaled_twice_dK), queries.value),
            keys.value.shape()[1], changes_);
      });
    });
  }

 private:
  template <class Forwards>
  Traced rotated(const Traced& x, const Traced& y, Forwards forwards) {
    if (changes_.contains(C::not_rotated_back)) return {y.value, x.node};
    return changes_.contains(C::rotated_again) ? unary(x, y.value, forwards) : y;
  }

  static bool operands_are_only_values(const Traced& queries, const Traced& keys,
                                       const Biases<Traced>& biases, const Operand& sinks) {
    return !queries.node && !keys.node && !(sinks && sinks->node) &&
           std::none_of(biases.begin(), biases.end(),
                        [](const auto& bias) { return bias.value.node.has_value(); });
  }

  static Tensor dropped_by(const Tensor& x, const Forward& forward) {
    return forward.in[Input::dropout_mask] ? TensorOps(forward.in).dropped(x) : x;
  }

  /// The derivative by the weights, from that by those after dropout.
  Tensor of_weights(const Tensor& of_kept, const Forward& forward) const {
    const Tensor dP = dropped_by(of_kept, forward);
    const std::optional<Tensor>& seed = given_[Input::grad_weights];
    return seed ? sum_of(dP, cast(*seed, DType::f64)) : dP;
  }

  /// P * (dP - row sums + dL) / temperature
  Tensor of_scores(const Tensor& P, Tensor dP, const std::vector<double>& sums) const {
    const auto out = dP.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double sum = changes_.contains(C::no_row_sums) ? 0 : sums[i / given_.S];
      out[i] = chained(P.data<double>()[i], out[i] - sum + of_logsumexp_[i / given_.S]) /
               changed_.in.options.temperature;
    }
    return dP;
  }

  Tensor of_sinks(const Traced& sinks, const Tensor& logsumexp,
                  const std::vector<double>& sums) const {
    Tensor result(DType::f64, {given_.H});
    for (std::size_t row = 0; row < sums.size(); ++row) {
      const std::size_t h = row / given_.rows.size() % given_.H;
      if (logsumexp.data<double>()[row] == -HUGE_VAL) continue;  // padding, which has no sink
      const double share = std::exp(sinks.value.data<double>()[h] - logsumexp.data<double>()[row]);
      result.mutable_data<double>()[h] += share * (of_logsumexp_[row] - sums[row]);
    }
    return result;
  }

  Tensor before_softcap(Tensor g, const Tensor& y) const {
    const double c = changed_.in.options.softcap;
    if (c == 0 || changes_.contains(C::no_softcap)) return g;
    std::size_t i = 0;
    for (double& value : g.mutable_data<double>()) {
      const double t = y.data<double>()[i++] / c;
      value = chained(value, (1 - t) * (1 + t));
    }
    return g;
  }

  Tensor scaled(const Tensor& ds, C unscaled, C scaled_twice) const {
    const double scale = changed_.in.scale.factor();
    return times(ds, changes_.contains(unscaled)       ? 1
                     : changes_.contains(scaled_twice) ? scale * scale
                                                       : scale);
  }

  const Inputs& given_;
  const Forward &job_, &changed_;
  const BackwardChanges& changes_;
  std::optional<Tensor>& of_kept_;
  std::vector<double> of_logsumexp_;  ///< the derivative of the loss by the natural logsumexp
};

BackwardPass::Forward::Forward(Variant variant, bool only_scores) {
  variant.erase({Input::gate});
  variant.options.lse_base = std::numbers::e;
  in = make_inputs(variant.tensors, variant.options);
  if (in.options.score != Score::dot || in.options.normaliser != Normaliser::softmax ||
      in.options.softmax_axis != SoftmaxAxis::keys || in.options.empty_rows == EmptyRows::uniform ||
      variant.row_change != RowChange::none)
    throw Error(ErrorKind::usage, "derivatives of other scores or weights");
  std::vector<Request> requests = {Output::scaled_scores, Output::masked_scores};
  if (!only_scores) requests.insert(requests.end(), {Output::logsumexp, Output::head_context});
  const TensorMap outputs = attend(in, requests);
  scaled = outputs.at(name_of(Output::scaled_scores));
  masked = outputs.at(name_of(Output::masked_scores));
  if (only_scores) return;
  logsumexp = outputs.at(name_of(Output::logsumexp));
  context = outputs.at(name_of(Output::head_context));
}

Tensor BackwardPass::Forward::weights(const Tensor& of_rows) const {
  Tensor result = masked;
  std::size_t i = 0;
  for (double& x : result.mutable_data<double>()) {
    const double of_row = of_rows.data<double>()[i++ / in.S];
    const bool is_hidden = std::isinf(x) && x < 0;
    x = is_hidden || std::isinf(of_row) ? 0 : std::exp(x / in.options.temperature - of_row);
  }
  return result;
}

const Tensor& BackwardPass::Forward::weights() const {
  if (!right_weights) right_weights = weights(logsumexp);
  return *right_weights;
}

BackwardPass::BackwardPass(const Inputs& given, const Variant& attention, Gradient of)
    : given_(given), of_(of), attention_(attention) {
  try {
    job_.emplace(attention, false);
  } catch (const Error&) {  // no dot products, or no softmax
  }
}

Tensor BackwardPass::gradient(const Variant& variant) {
  const BackwardChanges& changes = variant.backward;
  const Input wanted = changes.contains(C::of_queries)  ? Input::Q
                       : changes.contains(C::of_keys)   ? Input::K
                       : changes.contains(C::of_values) ? Input::V
                                                        : of_.of;
  if (!job_ || !given_[wanted])
    throw Error(ErrorKind::usage, "the job does not have this gradient");
  const bool is_backward = changes.contains(C::only);
  std::optional<Forward> other;
  if (!is_same(variant, attention_))
    other.emplace(variant, is_backward && !changes.contains(C::own_logsumexp));
  const Forward& changed = other ? *other : *job_;
  Ops ops(given_, wanted, is_backward ? *job_ : changed, changed, changes, of_kept_);
  Formula<Ops> formula(ops, given_);
  const Traced context =
      ops.attended(formula.at(Output::queries), formula.all_keys(), formula.all_values(),
                   formula.biases(), formula.given(Input::sinks));
  ops.seed(context, Tensor(DType::f64, context.value.shape()));
  formula.provide(Output::head_context, formula.gated(context));
  for (const auto& [seed, output] : kSeeds)
    if (given_[seed] && seed != Input::grad_weights && seed != Input::grad_logsumexp)
      ops.seed(formula.at(same_numbers_as(output)), cast(*given_[seed], DType::f64));
  ops.run();
  const std::optional<Tensor> full = ops.derivative(wanted);
  if (!full) throw Error(ErrorKind::usage, "the loss does not depend on this input");
  Tensor result = to_user_layout(wanted, *full, given_);
  return changes.contains(C::twice) ? times(std::move(result), 2) : result;
}

}  // namespace attn
