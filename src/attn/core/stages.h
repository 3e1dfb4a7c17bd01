// The formula, stage by stage; the fast kernels stand in for several of them at once where they
// can.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/same_name.h"
#include "attn/core/fast.h"
#include "attn/core/heads.h"
#include "attn/core/inputs.h"
#include "attn/core/mask.h"
#include "attn/core/normalise.h"
#include "attn/core/options.h"
#include "attn/core/position.h"
#include "attn/core/project.h"
#include "attn/core/qk_norm.h"
#include "attn/core/rotary.h"
#include "attn/core/score.h"
#include "attn/core/summaries.h"
#include "attn/core/weigh.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Computes a value when it is first asked for.
template <class T, class F>
const T& once(std::optional<T>& value, F&& compute) {
  if (!value) value = compute();
  return *value;
}

/// The stages of one problem, as long as inputs, options and outputs live: each is a line of the
/// formula, computed when something needs it.
class Stages {
 public:
  Stages(const Inputs& inputs, const Options& options, const std::vector<std::string>& outputs,
         const RowSinks* sinks = nullptr)
      : in_(inputs), options_(options), outputs_(outputs), sinks_(sinks) {}

  /// Hands this output to its sink while it is computed, where there is one and the kernels can.
  bool hand_on(const std::string& name) {
    if (!sink_of(name) || !is_fast()) return false;
    fast();
    return true;
  }

  Tensor positions() const {
    return chosen(sinusoidal_positions(position(), in_.L, in_.embeddings.shape()[2]));
  }

  const Tensor& inputs() {
    return once(inputs_, [&] { return add_positions(in_.embeddings, position(), in_.compute); });
  }

  const Tensor& queries() {  // (B, H, rows, D)
    return once(queries_, [&] {
      if (!in_.projected) return placed(chosen(in_.Q), in_.q_norm, query_angles());
      return placed(split_heads(project(chosen(inputs()), in_.W_Q, in_.b_Q, "queries"), in_.H),
                    in_.q_norm, query_angles());
    });
  }

  const Tensor& keys() {  // (B, G, N, D)
    return once(keys_, [&] {
      if (!in_.projected) return placed(in_.K, in_.k_norm, key_angles());
      return placed(split_heads(project(memory(), in_.W_K, in_.b_K, "keys"), in_.G), in_.k_norm,
                    key_angles());
    });
  }

  const Tensor& values() {  // (B, G, N, Dv)
    return once(values_, [&] {
      if (!in_.projected) return in_.V;
      return split_heads(
          project(in_.memory_V ? *in_.memory_V : memory(), in_.W_V, in_.b_V, "values"), in_.G);
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
    return once(scores_, [&] {
      return score(queries(), appended(present_keys(), in_.bias_K), in_, options_.score);
    });
  }

  const Tensor& scaled_scores() {
    if (is_fast()) return fast().scaled_scores;
    return once(scaled_, [&] { return scale_scores(scores(), options_, in_.D, in_.compute); });
  }

  const Tensor& masked_scores() { return is_fast() ? fast().masked_scores : masked().scores; }

  Tensor row_max() { return is_fast() ? fast().row_max : largest_of_queries(masked().scores); }

  const Tensor& weights() { return is_fast() ? fast().weights : normalised().weights; }

  const Tensor& logsumexp() { return is_fast() ? fast().logsumexp : normalised().logsumexp; }

  const Tensor& head_context() {  // (B, H, rows, Dv)
    if (is_fast()) return fast().head_context;
    return once(head_context_, [&] {
      return weigh(normalised().weights, appended(present_values(), in_.bias_V), masked().visible);
    });
  }

  Tensor context() { return side_by_side(head_context()); }  // (B, rows, H*Dv)

  Tensor output() { return project(context(), in_.W_O, in_.b_O, "output"); }

  Tensor chosen(const Tensor& tensor) const {
    return options_.rows.empty() ? tensor : take_rows(tensor, in_.rows);
  }

  /// The keys or values that every query sees, behind all others.
  Tensor appended(const Tensor& x, const std::optional<Tensor>& bias) const {
    const Tensor first = bias ? append_rows(x, *bias) : x;
    if (!options_.zero_key) return first;
    Shape one = first.shape();
    one[2] = 1;
    return append_rows(first, Tensor(first.dtype(), one));
  }

 private:
  Angles angles(const Tensor& positions) const {
    return in_.cos ? rotary_angles(*in_.cos, *in_.sin, positions)
                   : rotary_angles(options_.rotary, in_.D, positions);
  }

  /// Queries or keys normalised and turned, where that is asked for.
  Tensor placed(Tensor x, const std::optional<Tensor>& weight, const std::optional<Angles>& turn) {
    if (options_.qk_norm != QkNorm::none)
      x = qk_normalised(x, weight, options_.qk_norm, options_.qk_norm_epsilon, in_.compute);
    return turn ? rotated(x, *turn, options_.rotary.kind, in_.compute) : x;
  }

  std::optional<Angles> query_angles() const {
    if (options_.rotary.kind == Rotary::Kind::none) return std::nullopt;
    const Angles all = angles(in_.query_positions);
    return Angles{chosen(all.cos), chosen(all.sin)};
  }

  std::optional<Angles> key_angles() const {
    if (options_.rotary.kind == Rotary::Kind::none) return std::nullopt;
    return angles(in_.key_positions);
  }

  /// The past's tokens stand before the embeddings, unless the past is that of another memory.
  Position position() const {
    Position position = options_.position;
    if (!in_.past_of_memory) position.first += static_cast<std::int64_t>(in_.P);
    return position;
  }

  const Tensor& memory() { return in_.memory ? *in_.memory : inputs(); }

  const Masked& masked() {
    return once(masked_, [&] { return mask_scores(scaled_scores(), in_, options_); });
  }

  const Normalised& normalised() {
    return once(normalised_, [&] { return normalise(masked(), in_.sinks, options_); });
  }

  bool wants(std::string_view name) const {
    return std::any_of(outputs_.begin(), outputs_.end(),
                       [&](const std::string& output) { return same_name(name, output); });
  }

  const RowSink* sink_of(const std::string& name) const {
    if (sinks_ == nullptr || !wants(name) || !streams(name, outputs_)) return nullptr;
    const auto sink = sinks_->find(name);
    return sink == sinks_->end() ? nullptr : &sink->second;
  }

  FastWanted::Matrix matrix_wanted(const std::string& name, bool needed = false) const {
    const RowSink* const sink = sink_of(name);
    return {.kept = (wants(name) && sink == nullptr) || needed, .to = sink};
  }

  bool wants_context() const {
    return wants("head_context") || wants("context") || wants("output");
  }

  /// Integers are the reference's: exact until they are scaled.
  bool is_fast() {
    return once(is_fast_, [&] {
      return takes_fast_path(in_, options_, outputs_) && queries().dtype() == in_.compute &&
             present_keys().dtype() == in_.compute &&
             (!wants_context() || present_values().dtype() == in_.compute);
    });
  }

  const FastStages& fast() {
    return once(fast_, [&] {
      const FastWanted wanted{
          .scores = matrix_wanted("scores"),
          .scaled_scores = matrix_wanted("scaled_scores"),
          .masked_scores = matrix_wanted("masked_scores"),
          .weights = matrix_wanted("weights", wants("mean_weights") || wants("key_weights")),
          .row_max = wants("row_max"),
          .context = wants_context()};
      return attend_fast(queries(), appended(present_keys(), in_.bias_K),
                         wanted.context ? appended(present_values(), in_.bias_V) : Tensor(), in_,
                         options_, wanted);
    });
  }

  const Inputs& in_;
  const Options& options_;
  const std::vector<std::string>& outputs_;
  const RowSinks* sinks_;
  std::optional<bool> is_fast_;
  std::optional<FastStages> fast_;
  std::optional<Tensor> inputs_, queries_, keys_, values_, present_keys_, present_values_;
  std::optional<Tensor> scores_, scaled_, head_context_;
  std::optional<Masked> masked_;
  std::optional<Normalised> normalised_;
};

}  // namespace attn
