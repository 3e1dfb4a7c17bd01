// attn rollout: attention rollout over the layers of a model.

#include "attn/stats/rollout.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/emit.h"
#include "attn/cli/layer_tensors.h"
#include "attn/cli/rendering.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/weights_files.h"
#include "attn/job/recorded_positions.h"

namespace attn {
namespace {

struct RolloutArgs {
  std::vector<std::string> layers;
  RolloutOptions options;
  EmitArgs emit;
  LimitArgs limits;
};

/// (layers, B, H, L, S) of weights (..., L, S) with these axes.
Tensor with_all_axes(const Tensor& weights, const HeadAxes& axes) {
  const Shape& shape = weights.shape();
  return weights.reshaped({axes.layers, axes.items, axes.heads, *(shape.end() - 2), shape.back()});
}

/// Errors: data, unless the weights are those of self-attention with the batch items and tokens of
/// the layers before, whose product is `result`.
void check_layer(const Tensor& given, const Shape& shape, const std::optional<Shape>& result) {
  if (shape[2] == 0 || shape[3] != shape[4])
    fail_data(
        {.expected = "weights of self-attention, (..., L, L)", .found = to_string(given.shape())});
  if (!result || *result == Shape{shape[1], shape[3], shape[4]}) return;
  fail_data({.expected = "weights of " + counted((*result)[0], "batch item") + " and " +
                         counted((*result)[1], "token") + ", as in the layers before",
             .found = to_string(given.shape())});
}

/// Errors: data, unless each layer comes after all layers below it.
void require_ascending(const std::vector<std::int64_t>& numbers) {
  const auto wrong = std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>());
  if (wrong != numbers.end())
    fail_data({.expected = "layers in ascending order",
               .found = std::to_string(*std::next(wrong)) + " after " + std::to_string(*wrong)});
}

/// Rollout multiplies weights of self-attention. Errors: data, unless each query is at the key of
/// its index.
void require_own_keys(const ResultFile& result, const std::string& name, const HeadAxes& axes) {
  const Shape& shape = result.tensors.at(name).shape();
  const std::size_t L = *(shape.end() - 2), S = shape.back();
  const std::optional<QueryPositions> positions = positions_in(result.made_by, axes.items, L, S);
  const auto refuse = [](const std::string& found) {
    fail_data({.expected = "all queries of self-attention in order", .found = found});
  };
  if (!positions) refuse("unknown positions");
  if (positions->keys() != S) refuse(counted(S - positions->keys(), "appended key"));
  for (std::size_t item = 0; item < positions->items().size(); ++item)
    for (const auto& [begin, position] : positions->items()[item])
      if (position.key != static_cast<std::int64_t>(begin))
        refuse("query " + std::to_string(begin) + " at key " + std::to_string(position.key));
}

/// Errors: data, if these are the weights of several jobs in a bundle, which are no layers.
void require_one_job(const std::vector<std::string>& names) {
  const auto jobs = std::count_if(names.begin(), names.end(), is_output_of_job);
  if (jobs > 1)
    fail_data({.expected = "the weights of one job",
               .found = "those of " + std::to_string(jobs),
               .hint = "FILE#" + printable(names[0]) + " selects one"});
}

int print_rollout(const RolloutArgs& args) {
  TensorFiles files(reading_limits(args.limits, FileAccess::map));
  Rollout rollout(args.options);
  std::vector<std::int64_t> numbers;  // of the layers so far, as far as they are known
  bool is_batched = false;
  for (const std::string& file : files_of(args.layers)) {
    const TensorRef ref = parse_tensor_ref(file);
    const ResultFile layer_file = result_of(ref, files);
    const TensorMap& tensors = layer_file.tensors;
    const std::vector<std::string> names =
        ref.member.empty() ? within(printable(file), [&] { return weights_in(tensors); })
                           : tensors.names();
    within(printable(file), [&] { require_one_job(names); });
    for (const std::string& name : names)
      within(label_of(file, name), [&] {
        const HeadAxes axes = head_axes(layer_file, name, 2);
        const Tensor weights = with_all_axes(tensors.at(name), axes);
        check_layer(tensors.at(name), weights.shape(),
                    rollout.has_layers() ? std::optional(rollout.result().shape()) : std::nullopt);
        require_own_keys(layer_file, name, axes);
        warn_of_batch(layer_file, label_of(file, name), tensors.at(name).shape(), axes);
        is_batched |= axes.has_items;
        numbers.insert(numbers.end(), axes.numbers.begin(), axes.numbers.end());
        require_ascending(numbers);
        for (std::size_t layer = 0; layer < weights.shape()[0]; ++layer)
          rollout.add_layer(weights.at(layer));
      });
  }
  if (!rollout.has_layers())
    fail_data(
        {.where = {args.layers.front()}, .expected = "the weights of a layer", .found = "none"});
  const Tensor& result = rollout.result();
  TensorMap results;
  results.set("", is_batched ? result : result.at(0));
  emit_tensors(results, args.emit);
  return 0;
}

}  // namespace

Command rollout_command() {
  const auto args = std::make_shared<RolloutArgs>();
  args->emit.alone = "rollout";
  args->emit.is_result = true;
  Command command;
  command.description =
      "Computes attention rollout (Abnar and Zuidema 2020): how much each token of the last layer "
      "attends to each token of the input. For each layer, the heads' weights W become A = "
      "(1 - residual) W + residual I with rows that sum to 1, and the result is the product of all "
      "A, the last layer first.";
  command.example =
      "  attn rollout layer0.npz layer1.npz -o rollout.npy\n"
      "  attn rollout weights.npy --heads max --discard 0.9";
  command.add(required(positional(
      "FILE", args->layers,
      "weights of the layers in order: (layer, batch, head, L, L), or a tensor for each layer")));
  command.add(word("--heads", args->options.heads,
                   {{"mean", HeadFusion::mean}, {"max", HeadFusion::max}, {"min", HeadFusion::min}},
                   "how the weights of heads become one matrix: mean, max or min; default: mean"));
  command.add(number("--residual", args->options.residual, NumberRange::share, "X",
                     "share of the residual connection, from 0 to 1; default: 0.5"));
  command.add(
      number("--discard", args->options.discard, NumberRange::share, "X",
             "share of each layer's smallest weights to set to 0, from 0 to 1; default: 0"));
  add_emit_options(command, args->emit);
  add_limit_options(command, args->limits);
  command.action = [args] { return print_rollout(*args); };
  return command;
}

}  // namespace attn
