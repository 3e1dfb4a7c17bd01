// The table of outputs: one row for each output that a job can request. attention/formula.h
// computes them.
#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attn/problem/attention_arguments.h"
#include "attn/problem/axis.h"
#include "attn/problem/input_table.h"
#include "attn/problem/table_lookup.h"

namespace attn {

/// In the order of computation.
enum class Output : unsigned char {
  positions,
  inputs,
  W_Q_heads,
  W_K_heads,
  W_V_heads,
  queries,
  keys,
  values,
  present_K,
  present_V,
  gates,
  scores,
  scaled_scores,
  masked_scores,
  weights,
  dropped_weights,
  mean_weights,
  key_weights,
  row_max,
  logsumexp,
  weight_sum,
  entropy,
  effective_keys,
  keys_95,
  distance,
  first_key_weight,
  previous_token_weight,
  duplicate_token_weight,
  induction_weight,
  head_context,
  context,
  output,
  delta
};

/// The stage of the computation that yields an output.
enum class Phase {
  given,       ///< a given tensor in another shape, in its own dtype
  projection,  ///< before the scores
  scores,      ///< before the mask: hidden keys may still be NaN
  masked,      ///< after the mask: hidden keys have no effect
  gradient     ///< computed with the gradients (attention/gradients.h)
};

struct OutputRow {
  Output output;
  std::string_view name;
  AxisList axes;
  Phase phase;
  std::string_view description;
  bool has_error_bound = false;      ///< bounds/expected_error.h
  std::optional<Input> source = {};  ///< the problem has this output only if this input is given
  std::optional<Input> other_source = {};  ///< or this one
  bool is_weights = false;                 ///< its rows are weights of keys
  /// It is a statistic of the rows of this matrix (attention/row_statistics.h).
  std::optional<Output> reduces = {};
};

/// The rows, in the order of the enumerators.
inline constexpr auto kOutputs = [] {
  using enum Axis;
  using enum Phase;
  return std::to_array<OutputRow>({
      {.output = Output::positions,
       .name = "positions",
       .axes = {L, M},
       .phase = projection,
       .description = "positional encoding"},
      {.output = Output::inputs,
       .name = "inputs",
       .axes = {B, L, M},
       .phase = projection,
       .description = "embeddings after embedding scale, positional encoding and input_norm",
       .source = Input::embeddings},
      {.output = Output::W_Q_heads,
       .name = "W_Q_heads",
       .axes = {H, M, D},
       .phase = given,
       .description = "W_Q split into heads",
       .source = Input::W_Q},
      {.output = Output::W_K_heads,
       .name = "W_K_heads",
       .axes = {G, Mk, D},
       .phase = given,
       .description = "W_K split into heads",
       .source = Input::W_K},
      {.output = Output::W_V_heads,
       .name = "W_V_heads",
       .axes = {G, Mk, Dv},
       .phase = given,
       .description = "W_V split into heads",
       .source = Input::W_V},
      {.output = Output::queries,
       .name = "queries",
       .axes = {B, H, L, D},
       .phase = projection,
       .description = "X W_Q + b_Q, or Q as given",
       .has_error_bound = true},
      {.output = Output::keys,
       .name = "keys",
       .axes = {B, G, S, D},
       .phase = projection,
       .description = "X W_K + b_K, or K as given",
       .has_error_bound = true},
      {.output = Output::values,
       .name = "values",
       .axes = {B, G, S, Dv},
       .phase = projection,
       .description = "X W_V + b_V, or V as given",
       .has_error_bound = true},
      {.output = Output::present_K,
       .name = "present_K",
       .axes = {B, G, S, D},
       .phase = projection,
       .description = "past_K followed by the new keys; past_K of the next step",
       .has_error_bound = true},
      {.output = Output::present_V,
       .name = "present_V",
       .axes = {B, G, S, Dv},
       .phase = projection,
       .description = "past_V followed by the new values; past_V of the next step",
       .has_error_bound = true},
      {.output = Output::gates,
       .name = "gates",
       .axes = {B, H, L, Dv},
       .phase = projection,
       .description = "sigmoid(X W_gate + b_gate), factors on the context",
       .has_error_bound = true,
       .source = Input::W_gate,
       .other_source = Input::gate},
      {.output = Output::scores,
       .name = "scores",
       .axes = {B, H, L, S},
       .phase = scores,
       .description = "similarity of each query (row) to each key (column): Q K^T",
       .has_error_bound = true},
      {.output = Output::scaled_scores,
       .name = "scaled_scores",
       .axes = {B, H, L, S},
       .phase = scores,
       .description = "scores times scale, then softcap",
       .has_error_bound = true},
      {.output = Output::masked_scores,
       .name = "masked_scores",
       .axes = {B, H, L, S},
       .phase = masked,
       .description = "scaled scores plus mask; hidden keys are -inf",
       .has_error_bound = true},
      {.output = Output::weights,
       .name = "weights",
       .axes = {B, H, L, S},
       .phase = masked,
       .description = "how much each query (row) attends to each key (column)",
       .has_error_bound = true,
       .is_weights = true},
      {.output = Output::dropped_weights,
       .name = "dropped_weights",
       .axes = {B, H, L, S},
       .phase = masked,
       .description = "weights after dropout: times dropout_mask / (1 - dropout_p)",
       .has_error_bound = true,
       .source = Input::dropout_mask,
       .is_weights = true},
      {.output = Output::mean_weights,
       .name = "mean_weights",
       .axes = {B, L, S},
       .phase = masked,
       .description = "weights averaged over the heads",
       .is_weights = true},
      {.output = Output::key_weights,
       .name = "key_weights",
       .axes = {B, H, S},
       .phase = masked,
       .description = "weights summed over the queries: total attention to each key"},
      {.output = Output::row_max,
       .name = "row_max",
       .axes = {B, H, L},
       .phase = masked,
       .description = "the largest masked score of each query",
       .reduces = Output::masked_scores},
      {.output = Output::logsumexp,
       .name = "logsumexp",
       .axes = {B, H, L},
       .phase = masked,
       .description = "log of the sum of exp(masked_scores / temperature), per query",
       .has_error_bound = true},
      {.output = Output::weight_sum,
       .name = "weight_sum",
       .axes = {B, H, L},
       .phase = masked,
       .description = "sum of each query's weights",
       .reduces = Output::weights},
      {.output = Output::entropy,
       .name = "entropy",
       .axes = {B, H, L},
       .phase = masked,
       .description = "entropy of each query's weights in nats, -sum(w log w)",
       .has_error_bound = true,
       .reduces = Output::weights},
      {.output = Output::effective_keys,
       .name = "effective_keys",
       .axes = {B, H, L},
       .phase = masked,
       .description = "exp(entropy): how many keys of equal weight have this entropy",
       .reduces = Output::weights},
      {.output = Output::keys_95,
       .name = "keys_95",
       .axes = {B, H, L},
       .phase = masked,
       .description = "least number of keys with 95% of each query's weights",
       .reduces = Output::weights},
      {.output = Output::distance,
       .name = "distance",
       .axes = {B, H, L},
       .phase = masked,
       .description = "weights times the distances of query and key, summed over the keys",
       .reduces = Output::weights},
      {.output = Output::first_key_weight,
       .name = "first_key_weight",
       .axes = {B, H, L},
       .phase = masked,
       .description = "weight of the first key, often an attention sink",
       .reduces = Output::weights},
      {.output = Output::previous_token_weight,
       .name = "previous_token_weight",
       .axes = {B, H, L},
       .phase = masked,
       .description = "weight of the token before the query's",
       .reduces = Output::weights},
      {.output = Output::duplicate_token_weight,
       .name = "duplicate_token_weight",
       .axes = {B, H, L},
       .phase = masked,
       .description = "weights of earlier tokens that equal the query's",
       .source = Input::token_ids,
       .reduces = Output::weights},
      {.output = Output::induction_weight,
       .name = "induction_weight",
       .axes = {B, H, L},
       .phase = masked,
       .description = "weights of tokens that follow an earlier token equal to the query's",
       .source = Input::token_ids,
       .reduces = Output::weights},
      {.output = Output::head_context,
       .name = "head_context",
       .axes = {B, H, L, Dv},
       .phase = masked,
       .description = "weights V, for each head, after dropout; times gates if there are any",
       .has_error_bound = true},
      {.output = Output::context,
       .name = "context",
       .axes = {B, L, HDv},
       .phase = masked,
       .description = "weights V, the weighted sums of the values; heads concatenated",
       .has_error_bound = true},
      {.output = Output::output,
       .name = "output",
       .axes = {B, L, Mo},
       .phase = masked,
       .description = "context W_O + b_O, after the product with W_UV, if given",
       .has_error_bound = true,
       .source = Input::W_O,
       .other_source = Input::W_UV},
      {.output = Output::delta,
       .name = "delta",
       .axes = {B, H, L},
       .phase = gradient,
       .description = "row sums of head_context times its gradient, which kernels store"},
  });
}();

constexpr const auto& table_of(Output) { return kOutputs; }
static_assert(is_in_order(kOutputs, &OutputRow::output));

/// Whether the output has a score or weight for each query and key, (B, H, L, S): its rows can be
/// written while others are being computed.
constexpr bool is_score_matrix(Output output) {
  return row_of(output).axes == AxisList{Axis::B, Axis::H, Axis::L, Axis::S};
}
constexpr bool needs_scores(Output output) {
  return row_of(output).phase == Phase::scores || row_of(output).phase == Phase::masked;
}

/// nullopt if no output has this name.
inline std::optional<Output> output_named(std::string_view name) {
  return find_by_name<Output>(name);
}

class OutputSet {
 public:
  OutputSet() = default;
  OutputSet(std::initializer_list<Output> outputs) {
    for (const Output output : outputs) insert(output);
  }
  void insert(Output output) { bits_.set(index_of(output)); }
  void erase(Output output) { bits_.reset(index_of(output)); }
  bool contains(Output output) const { return bits_.test(index_of(output)); }
  bool needs_scores() const;

 private:
  std::bitset<kOutputs.size()> bits_;
};

/// An input that is the derivative of a loss with respect to an output. grad_context may also have
/// the shape of head_context.
struct Seed {
  Input input;
  Output of;
};
inline constexpr std::array kSeeds = {
    Seed{Input::grad_context, Output::context}, Seed{Input::grad_output, Output::output},
    Seed{Input::grad_weights, Output::weights}, Seed{Input::grad_logsumexp, Output::logsumexp}};

/// The derivative of a loss with respect to an input, which has its shape. The loss is the sum,
/// over the given seeds, of the elements of the output times those of the seed.
struct Gradient {
  Input of;
  bool operator==(const Gradient&) const = default;
};
/// "grad_Q".
std::string_view name_of(Gradient gradient);
/// "gradient of the loss with respect to Q".
std::string gradient_description(std::string_view input);
/// "grad_Q", or as in kernels "dQ", "d_q", "q.grad", "q_grad", also with a name that other
/// libraries always give the input ("grad_query"); nullopt for other names.
std::optional<Gradient> gradient_named(std::string_view name);

/// What a job can request: an output, a given tensor unchanged, or a gradient.
using Request = std::variant<Output, Input, Gradient>;
/// Of outputs, inputs and gradients.
const std::vector<std::string>& request_names();
/// nullopt if nothing has this name.
std::optional<Request> request_named(std::string_view name);
/// Whether it is computed with the gradients: a Gradient or delta.
bool is_of_gradients(const Request& request);
std::string_view name_of(const Request& request);
std::vector<std::string> names_of(const std::vector<Request>& requests);
OutputSet outputs_among(const std::vector<Request>& requests);
/// Whether the last axes are queries and keys.
bool is_of_pairs(const Request& request);

/// The outputs that this problem has, then the given tensors.
std::vector<Request> available_outputs(const AttentionArguments& given);
/// The gradients that it has, in the order of the inputs.
std::vector<Request> available_gradients(const AttentionArguments& given);

/// Errors: usage, with a line for each request that this problem does not have (`output` without
/// W_O).
void check_outputs(const std::vector<Request>& requests, const AttentionArguments& given);

/// The requests with these names. Errors: usage, if a name is unknown, with a line for each unknown
/// name and each request that this problem does not have.
std::vector<Request> requests_named(const std::vector<std::string>& names,
                                    const AttentionArguments& given);

}  // namespace attn
