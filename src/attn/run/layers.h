// What attn run and attn batch share when they compute several layers of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/model/layer_series.h"
#include "attn/run/execution.h"
#include "attn/run/joined_results.h"
#include "attn/run/memory_estimate.h"

namespace attn {

/// "layer 3", for messages.
std::string layer_label(std::int64_t layer);

/// Several layers of a model, one after the other. Their results are joined, or each has files of
/// its own; then join() and the functions of the description are not called.
class Layers {
 public:
  /// `files` has read what all layers use. `hint` is for users whose layers cannot be joined.
  /// `series` and `files` outlive this.
  Layers(const LayerSeries& series, TensorFiles& files, std::string hint = "")
      : series_(series), files_(files), hint_(std::move(hint)) {}

  /// Joins the plan of a layer to those of the layers before. `by_rows` are outputs that are
  /// written while they are computed. Errors: as JoinedPlan::add(), naming the layer.
  void join(std::int64_t layer, const Plan& plan, const OutputSet& by_rows = {});
  /// The plan of the joined layers, of which there is at least one.
  const Plan& joined() const { return plan_->all(); }

  /// Bytes that stay in memory while a layer is computed: inputs of all layers, joined outputs.
  std::size_t bytes_kept() const;
  /// The memory of one layer with these.
  MemoryEstimate memory(std::int64_t layer, const Plan& plan) const;

  /// After join(): adds the layer, whose tensors `own` has read, to the description of the result.
  void describe(const Job& job, const Inputs& in, const TensorFiles& own);
  /// The description, a result without outputs; called once.
  Result take_description();

  /// Computes a layer; its rows go to `receiver`, which may be nullptr. Errors: as execute(),
  /// naming the layer.
  Result compute(std::int64_t layer, const ExecutionRequest& request, RowReceiver* receiver);
  /// A line for each different warning of the layers computed, of which there are `count`.
  std::vector<std::string> warnings(std::size_t count) const {
    return lines_of_layers(warnings_, count);
  }

 private:
  std::size_t shared_bytes() const;

  const LayerSeries& series_;
  TensorFiles& files_;
  const std::string hint_;
  std::optional<JoinedPlan> plan_;
  std::optional<Result> described_;
  std::map<std::string, std::string> digests_;  ///< of the layers' own inputs, by name
  std::vector<LayerWarning> warnings_;
};

}  // namespace attn
