#include "attn/run/layers.h"

#include <utility>

#include "attn/base/error.h"
#include "attn/job/recorded_visibility.h"

namespace attn {

std::string layer_label(std::int64_t layer) { return "layer " + std::to_string(layer); }

void Layers::join(std::int64_t layer, const Plan& plan, const OutputSet& by_rows) {
  const std::vector<std::int64_t>& layers = series_.layers();
  if (!plan_) plan_.emplace(layers.size(), by_rows);
  within(layer_label(layer), [&] { plan_->add(plan, layer_label(layers.front()), hint_); });
}

std::size_t Layers::shared_bytes() const { return files_.limits().memory - files_.budget().left(); }

std::size_t Layers::bytes_kept() const {
  return saturating_sum(shared_bytes(), plan_ ? plan_->bytes_kept() : 0);
}

MemoryEstimate Layers::memory(std::int64_t layer, const Plan& plan) const {
  MemoryEstimate memory(plan, "tensors of " + layer_label(layer));
  memory.add("inputs of all layers", shared_bytes());
  if (plan_) memory.add("outputs of all layers", plan_->bytes_kept());
  return memory;
}

void Layers::describe(const Job& job, const Inputs& in, const TensorFiles& own) {
  if (described_)
    keep_common_visibility(in, described_->made_by);
  else
    described_ = describe_job(job, in, joined(), series_.whole(), files_, series_.layers());
  for (auto& digest : own.digests()) digests_.insert(std::move(digest));
}

Result Layers::take_description() {
  add_inputs(digests_, described_->made_by);
  return std::move(*described_);
}

Result Layers::compute(std::int64_t layer, const ExecutionRequest& request, RowReceiver* receiver) {
  Execution execution = within(layer_label(layer), [&] { return execute(request, receiver); });
  for (std::string& warning : execution.warnings) warnings_.push_back({layer, std::move(warning)});
  return std::move(execution.result);
}

}  // namespace attn
