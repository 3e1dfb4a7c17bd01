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
  const auto entry = [](Output output, std::string_view name, AxisList axes, Phase phase,
                        std::string_view description) {
    return OutputRow{output, name, axes, phase, description};
  };
  const auto statistic = [](Output output, std::string_view name, std::string_view description,
                            Output matrix = Output::weights) {
    OutputRow row{output, name, {B, H, L}, masked, description};
    row.reduces = matrix;
    return row;
  };
  // For what few rows have.
  const auto with_bound = [](OutputRow row) {
    row.has_error_bound = true;
    return row;
  };
  const auto of_weights = [](OutputRow row) {
    row.is_weights = true;
    return row;
  };
  const auto if_given = [](OutputRow row, Input source, std::optional<Input> other = {}) {
    row.source = source;
    row.other_source = other;
    return row;
  };
  return std::to_array<OutputRow>({
      entry(Output::positions, "positions", {L, M}, projection, "positional encoding"),
      if_given(entry(Output::inputs, "inputs", {B, L, M}, projection,
                     "embeddings after embedding scale, positional encoding and input_norm"),
               Input::embeddings),
      if_given(entry(Output::W_Q_heads, "W_Q_heads", {H, M, D}, given, "W_Q split into heads"),
               Input::W_Q),
      if_given(entry(Output::W_K_heads, "W_K_heads", {G, Mk, D}, given, "W_K split into heads"),
               Input::W_K),
      if_given(entry(Output::W_V_heads, "W_V_heads", {G, Mk, Dv}, given, "W_V split into heads"),
               Input::W_V),
      with_bound(entry(Output::queries, "queries", {B, H, L, D}, projection,
                       "X W_Q + b_Q, or Q as given")),
      with_bound(
          entry(Output::keys, "keys", {B, G, S, D}, projection, "X W_K + b_K, or K as given")),
      with_bound(
          entry(Output::values, "values", {B, G, S, Dv}, projection, "X W_V + b_V, or V as given")),
      with_bound(entry(Output::present_K, "present_K", {B, G, S, D}, projection,
                       "past_K followed by the new keys; past_K of the next step")),
      with_bound(entry(Output::present_V, "present_V", {B, G, S, Dv}, projection,
                       "past_V followed by the new values; past_V of the next step")),
      with_bound(if_given(entry(Output::gates, "gates", {B, H, L, Dv}, projection,
                                "sigmoid(X W_gate + b_gate), factors on the context"),
                          Input::W_gate, Input::gate)),
      with_bound(entry(Output::scores, "scores", {B, H, L, S}, scores,
                       "similarity of each query (row) to each key (column): Q K^T")),
      with_bound(entry(Output::scaled_scores, "scaled_scores", {B, H, L, S}, scores,
                       "scores times scale, then softcap")),
      with_bound(entry(Output::masked_scores, "masked_scores", {B, H, L, S}, masked,
                       "scaled scores plus mask; hidden keys are -inf")),
      with_bound(of_weights(entry(Output::weights, "weights", {B, H, L, S}, masked,
                                  "how much each query (row) attends to each key (column)"))),
      with_bound(of_weights(
          if_given(entry(Output::dropped_weights, "dropped_weights", {B, H, L, S}, masked,
                         "weights after dropout: times dropout_mask / (1 - dropout_p)"),
                   Input::dropout_mask))),
      of_weights(entry(Output::mean_weights, "mean_weights", {B, L, S}, masked,
                       "weights averaged over the heads")),
      entry(Output::key_weights, "key_weights", {B, H, S}, masked,
            "weights summed over the queries: total attention to each key"),
      statistic(Output::row_max, "row_max", "the largest masked score of each query",
                Output::masked_scores),
      with_bound(entry(Output::logsumexp, "logsumexp", {B, H, L}, masked,
                       "log of the sum of exp(masked_scores / temperature), per query")),
      statistic(Output::weight_sum, "weight_sum", "sum of each query's weights"),
      with_bound(statistic(Output::entropy, "entropy",
                           "entropy of each query's weights in nats, -sum(w log w)")),
      statistic(Output::effective_keys, "effective_keys",
                "exp(entropy): how many keys of equal weight have this entropy"),
      statistic(Output::keys_95, "keys_95",
                "least number of keys with 95% of each query's weights"),
      statistic(Output::distance, "distance",
                "weights times the distances of query and key, summed over the keys"),
      statistic(Output::first_key_weight, "first_key_weight",
                "weight of the first key, often an attention sink"),
      statistic(Output::previous_token_weight, "previous_token_weight",
                "weight of the token before the query's"),
      if_given(statistic(Output::duplicate_token_weight, "duplicate_token_weight",
                         "weights of earlier tokens that equal the query's"),
               Input::token_ids),
      if_given(statistic(Output::induction_weight, "induction_weight",
                         "weights of tokens that follow an earlier token equal to the query's"),
               Input::token_ids),
      with_bound(entry(Output::head_context, "head_context", {B, H, L, Dv}, masked,
                       "weights V, for each head, after dropout; times gates if there are any")),
      with_bound(entry(Output::context, "context", {B, L, HDv}, masked,
                       "weights V, the weighted sums of the values; heads concatenated")),
      with_bound(if_given(entry(Output::output, "output", {B, L, Mo}, masked,
                                "context W_O + b_O, after the product with W_UV, if given"),
                          Input::W_O, Input::W_UV)),
      entry(Output::delta, "delta", {B, H, L}, gradient,
            "row sums of head_context times its gradient, which kernels store"),
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
