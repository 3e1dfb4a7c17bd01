#include "attn/run/joined_results.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

std::string name_in(const PlannedOutput& output) { return std::string(name_of(output.request)); }

/// The product of the lengths of axes [first, last).
std::size_t elements_of_axes(const Shape& shape, std::size_t first, std::size_t last) {
  std::size_t count = 1;
  for (std::size_t axis = first; axis < last; ++axis) count *= shape[axis];
  return count;
}

/// The plan of `count` jobs with the shapes of this one.
Plan with_first_axis(const Plan& one, std::size_t count, const OutputSet& by_rows) {
  Plan plan = one;
  for (PlannedOutput& output : plan.outputs) {
    output.shape.insert(output.shape.begin(), count);
    output.bytes = saturating_product({output.bytes, count});
    if (!output.axes.empty()) output.axes.insert(0, Axis::layer);
    const Output* const computed = std::get_if<Output>(&output.request);
    output.streamed = computed != nullptr && by_rows.contains(*computed);
  }
  return plan;
}

void require_same_shapes(const Plan& plan, const Plan& first, const std::string& first_name,
                         const std::string& hint) {
  for (std::size_t i = 0; i < first.outputs.size(); ++i) {
    const PlannedOutput &one = plan.outputs[i], &other = first.outputs[i];
    if (one.shape == other.shape && one.dtype == other.dtype) continue;
    const auto described = [](const PlannedOutput& output) {
      return std::string(name_of(output.dtype)) + " " + to_string(output.shape);
    };
    fail_data({.subject = name_in(one),
               .expected = described(other) + " as in " + first_name,
               .found = described(one),
               .hint = hint});
  }
}

}  // namespace

void add_batch_axis(Job& job) {
  for (const Input input : {Input::embeddings, Input::Q, Input::K, Input::V})
    if (const Tensor* tensor = find(job.tensors, input); tensor != nullptr && tensor->rank() == 2) {
      const Shape& shape = tensor->shape();
      job.tensors.set(std::string(name_of(input)), tensor->reshaped({1, shape[0], shape[1]}));
    }
}

void add_inputs(const std::map<std::string, std::string>& more, Json& made_by) {
  const auto members = made_by.get<JsonObject>();
  const auto inputs = std::find_if(members->begin(), members->end(),
                                   [](const auto& member) { return member.first == "inputs"; });
  auto& digests = *inputs->second.get<JsonObject>();
  std::map<std::string, Json> all(std::make_move_iterator(digests.begin()),
                                  std::make_move_iterator(digests.end()));
  for (const auto& [name, digest] : more) all.emplace(text_of_name(name), digest);
  digests.assign(std::make_move_iterator(all.begin()), std::make_move_iterator(all.end()));
}

void JoinedPlan::add(const Plan& one, const std::string& first_name, const std::string& hint) {
  if (all_.outputs.empty()) {
    first_ = one;
    all_ = with_first_axis(one, count_, by_rows_);
    return;
  }
  require_same_shapes(one, first_, first_name, hint);
  all_.flops += one.flops;
  for (std::size_t i = 0; i < one.outputs.size(); ++i)
    all_.outputs[i].flops += one.outputs[i].flops;
}

std::size_t JoinedPlan::bytes_kept() const {
  std::size_t bytes = 0;
  for (const PlannedOutput& output : all_.outputs)
    if (!output.streamed) bytes = saturating_sum(bytes, output.bytes);
  return bytes;
}

JoinedResults::JoinedResults(const Plan& plan, RowReceiver* files) : plan_(plan), files_(files) {
  for (const PlannedOutput& output : plan.outputs) {
    const Shape& shape = output.shape;
    const std::size_t after = output.query_axis().value_or(0) + 1;
    if (output.streamed)
      places_[name_in(output)] = {elements_of_axes(shape, 1, after),
                                  elements_of_axes(shape, after, shape.size())};
    else
      kept_.emplace(name_in(output), Tensor(output.dtype, shape));
  }
}

void JoinedResults::write_rows(Output output, const RowBlock& rows) {
  RowBlock moved = rows;
  moved.first += index_ * places_.at(std::string(name_of(output))).rows;
  files_->write_rows(output, moved);
}

void JoinedResults::add(const Result& one) {
  for (const PlannedOutput& planned : plan_.outputs) {
    const Tensor* const tensor = one.outputs.find(name_of(planned.request));
    if (tensor == nullptr) continue;  // has been received by write_rows()
    if (const auto kept = kept_.find(name_in(planned)); kept != kept_.end()) {
      if (tensor->bytes() > 0)
        std::memcpy(kept->second.mutable_raw() + index_ * tensor->bytes(), tensor->raw(),
                    tensor->bytes());
      continue;
    }
    const Place& place = places_.at(name_in(planned));
    if (tensor->size() == 0) continue;
    const RowBlock rows{.first = 0,
                        .count = place.rows,
                        .columns = place.columns,
                        .dtype = tensor->dtype(),
                        .data = tensor->raw(),
                        .stride = place.columns * size_of(tensor->dtype())};
    write_rows(std::get<Output>(planned.request), rows);
  }
  ++index_;
}

TensorMap JoinedResults::outputs() const {
  TensorMap outputs;
  for (const PlannedOutput& planned : plan_.outputs)
    if (const auto kept = kept_.find(name_in(planned)); kept != kept_.end())
      outputs.set(kept->first, kept->second);
  return outputs;
}

}  // namespace attn
