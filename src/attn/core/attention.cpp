#include "attn/core/attention.h"

#include <algorithm>
#include <optional>

#include "attn/core/fast.h"
#include "attn/core/heads.h"
#include "attn/core/mask.h"
#include "attn/core/position.h"
#include "attn/core/project.h"
#include "attn/core/score.h"
#include "attn/core/softmax.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

/// Computes a value when it is first asked for.
template <class T, class F>
const T& once(std::optional<T>& value, F&& compute) {
  if (!value) value = compute();
  return *value;
}

/// The stages of one problem: each is a line of the formula, computed when something needs it.
class Stages {
 public:
  Stages(const Inputs& inputs, const Options& options, const std::vector<std::string>& outputs)
      : in_(inputs), options_(options), outputs_(outputs) {}

  Tensor positions() const {
    return chosen(sinusoidal_positions(position(), in_.L, in_.embeddings.shape()[2]));
  }

  const Tensor& inputs() {
    return once(inputs_, [&] { return add_positions(in_.embeddings, position(), in_.compute); });
  }

  const Tensor& queries() {  // (B, H, rows, D)
    return once(queries_, [&] {
      if (!in_.projected) return chosen(in_.Q);
      return split_heads(project(chosen(inputs()), in_.W_Q, in_.b_Q, "queries"), in_.H);
    });
  }

  const Tensor& keys() {  // (B, G, N, D)
    return once(keys_, [&] {
      if (!in_.projected) return in_.K;
      return split_heads(project(memory(), in_.W_K, in_.b_K, "keys"), in_.G);
    });
  }

  const Tensor& values() {  // (B, G, N, Dv)
    return once(values_, [&] {
      if (!in_.projected) return in_.V;
      return split_heads(project(memory(), in_.W_V, in_.b_V, "values"), in_.G);
    });
  }

  const Tensor& present_keys() {  // (B, G, S, D)
    return in_.past_K ? once(present_keys_, [&] { return append_rows(*in_.past_K, keys()); })
                      : keys();
  }

  const Tensor& present_values() {  // (B, G, S, Dv)
    return in_.past_V ? once(present_values_, [&] { return append_rows(*in_.past_V, values()); })
                      : values();
  }

  const Tensor& scores() {
    if (is_fast()) return fast().scores;
    return once(scores_,
                [&] { return score(queries(), present_keys(), options_.score, in_.compute); });
  }

  const Tensor& scaled_scores() {
    return once(scaled_, [&] { return scale_scores(scores(), options_, in_.D, in_.compute); });
  }

  const Masked& masked() {
    return once(masked_, [&] { return mask_scores(scaled_scores(), in_, options_); });
  }

  const Tensor& weights() { return is_fast() ? fast().weights : normalised().weights; }

  const Tensor& logsumexp() { return is_fast() ? fast().logsumexp : normalised().logsumexp; }

  const Tensor& head_context() {  // (B, H, rows, Dv)
    if (is_fast()) return fast().head_context;
    return once(head_context_,
                [&] { return weigh(normalised().weights, present_values(), masked().visible); });
  }

  Tensor context() { return side_by_side(head_context()); }  // (B, rows, H*Dv)

  Tensor output() { return project(context(), in_.W_O, in_.b_O, "output"); }

  Tensor chosen(const Tensor& tensor) const {
    return options_.rows.empty() ? tensor : take_rows(tensor, in_.rows);
  }

 private:
  /// The past's tokens stand before the embeddings, unless the past is that of another memory.
  Position position() const {
    Position position = options_.position;
    if (!in_.memory) position.first += static_cast<std::int64_t>(in_.P);
    return position;
  }

  const Tensor& memory() { return in_.memory ? *in_.memory : inputs(); }

  const Normalised& normalised() {
    return once(normalised_,
                [&] { return softmax(masked(), options_.softmax_axis, options_.empty_rows); });
  }

  bool wants(const std::string& name) const {
    return std::find(outputs_.begin(), outputs_.end(), name) != outputs_.end();
  }

  /// Integers are the reference's: exact until they are scaled.
  bool is_fast() {
    return once(is_fast_, [&] {
      return takes_fast_path(in_, options_, outputs_) && queries().dtype() == in_.compute &&
             present_keys().dtype() == in_.compute && present_values().dtype() == in_.compute;
    });
  }

  const FastStages& fast() {
    return once(fast_, [&] {
      return attend_fast(queries(), present_keys(), present_values(), in_, options_,
                         {wants("scores"), wants("weights")});
    });
  }

  const Inputs& in_;
  const Options& options_;
  const std::vector<std::string>& outputs_;
  std::optional<bool> is_fast_;
  std::optional<FastStages> fast_;
  std::optional<Tensor> inputs_, queries_, keys_, values_, present_keys_, present_values_;
  std::optional<Tensor> scores_, scaled_, head_context_;
  std::optional<Masked> masked_;
  std::optional<Normalised> normalised_;
};

/// (M, heads * D) -> (heads, M, D).
Tensor weight_heads(const Tensor& W, std::size_t heads) {
  const std::size_t M = W.shape()[0], width = W.shape()[1];
  return split_heads(W.reshaped({1, M, width}), heads).reshaped({heads, M, width / heads});
}

Tensor without_lifted_axes(const Tensor& tensor, const Inputs& in, bool has_heads) {
  return tensor.reshaped(user_shape(tensor.shape(), in, has_heads));
}

Tensor context_as_given(Stages& stages, const Inputs& in, Layout layout) {
  if (in.packed) return without_lifted_axes(stages.context(), in, false);
  return layout == Layout::bhld ? stages.head_context() : swap_middle_axes(stages.head_context());
}

Tensor computed(const std::string& name, Stages& stages, const Inputs& in, const Options& options) {
  const auto per_head = [&](const Tensor& tensor) { return without_lifted_axes(tensor, in, true); };
  if (name == "positions") return stages.positions();
  if (name == "inputs") return without_lifted_axes(stages.chosen(stages.inputs()), in, false);
  if (name == "queries") return per_head(stages.queries());
  if (name == "keys") return per_head(stages.keys());
  if (name == "values") return per_head(stages.values());
  if (name == "present_K") return per_head(stages.present_keys());
  if (name == "present_V") return per_head(stages.present_values());
  if (name == "scores") return per_head(stages.scores());
  if (name == "scaled_scores") return per_head(stages.scaled_scores());
  if (name == "masked_scores") return per_head(stages.masked().scores);
  if (name == "weights") return per_head(stages.weights());
  if (name == "logsumexp") return per_head(stages.logsumexp());
  if (name == "head_context") return per_head(stages.head_context());
  if (name == "context") return context_as_given(stages, in, options.layout);
  return without_lifted_axes(stages.output(), in, false);
}

/// A given tensor, or its columns head by head: as it was given, whatever is computed in.
std::optional<Tensor> given(const std::string& name, const TensorMap& tensors, const Inputs& in) {
  if (const Tensor* tensor = tensors.find(name)) return *tensor;
  if (name == "W_Q_heads") return weight_heads(tensors.at("W_Q"), in.H);
  if (name == "W_K_heads") return weight_heads(tensors.at("W_K"), in.G);
  if (name == "W_V_heads") return weight_heads(tensors.at("W_V"), in.G);
  return std::nullopt;
}

/// What an output cannot be had without, or "" when this problem has it.
std::string missing(const std::string& name, const TensorMap& tensors, const Options& options) {
  const std::string needed = name == "output"      ? "W_O"
                             : name == "W_Q_heads" ? "W_Q"
                             : name == "W_K_heads" ? "W_K"
                             : name == "W_V_heads" ? "W_V"
                             : name == "inputs"    ? "embeddings"
                                                   : "";
  if (name == "positions" && options.position.kind == Position::Kind::none) return "position";
  return needed.empty() || tensors.contains(needed) ? "" : needed;
}

std::vector<std::string> every_name() {
  std::vector<std::string> names = kInputNames;
  for (const OutputName& output : kOutputNames) names.emplace_back(output.name);
  return names;
}

}  // namespace

void check_outputs(const std::vector<std::string>& outputs, const TensorMap& tensors,
                   const Options& options) {
  std::vector<std::string> problems;
  for (const std::string& name : outputs) {
    const bool is_input =
        std::find(kInputNames.begin(), kInputNames.end(), name) != kInputNames.end();
    const bool is_output =
        std::any_of(kOutputNames.begin(), kOutputNames.end(),
                    [&](const OutputName& output) { return name == output.name; });
    if (!is_input && !is_output)
      problems.push_back("outputs: expected names of outputs, found '" + printable(name) + "'" +
                         did_you_mean(name, every_name()));
    else if (is_input && !tensors.contains(name))
      problems.push_back("outputs: expected " + name + " among the tensors, found none");
    else if (const std::string needed = missing(name, tensors, options); !needed.empty())
      problems.push_back("outputs: expected " + needed + " for " + name + ", found none");
  }
  if (!problems.empty()) throw Error(ErrorKind::usage, problems);
}

std::vector<std::string> available_outputs(const TensorMap& tensors, const Options& options) {
  std::vector<std::string> names;
  for (const OutputName& output : kOutputNames)
    if (missing(output.name, tensors, options).empty()) names.emplace_back(output.name);
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

TensorMap attend(const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs) {
  const Inputs in = make_inputs(tensors, options);
  check_outputs(outputs, tensors, options);
  return attend(in, tensors, options, outputs);
}

TensorMap attend(const Inputs& in, const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs) {
  Stages stages(in, options, outputs);
  TensorMap results;
  for (const std::string& name : outputs) {
    if (const auto tensor = given(name, tensors, in)) {
      results.set(name, *tensor);
      continue;
    }
    const Tensor result = computed(name, stages, in, options);
    results.set(name, is_float(result.dtype()) ? cast(result, in.result) : result);
  }
  return results;
}

}  // namespace attn
