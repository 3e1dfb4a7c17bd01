// attn model: shows how attn reads the layers of a model (model/model_job.h).
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/grouped.h"
#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/io/json_write.h"
#include "attn/model/model_job.h"

namespace attn {
namespace {

struct ModelArgs {
  std::string folder;
  std::optional<std::int64_t> layer;
  bool json = false;
  LimitArgs limits;
};

/// The name of a tensor with '#' for the number of its layer.
std::string without_number(std::string name, std::int64_t layer) {
  const std::string number = "." + std::to_string(layer) + ".";
  const std::size_t at = name.find(number);
  return at == std::string::npos ? name : name.replace(at, number.size(), ".#.");
}

/// "  heads            4": each key on its own line; tensors without the name of their file.
std::string keys_of(const Document& document, const ModelFacts& facts, std::int64_t layer) {
  std::size_t width = 0;
  for (const Entry& entry : document.entries) width = std::max(width, entry.key.size());
  std::string lines;
  for (const Entry& entry : document.entries) {
    const auto text = entry.value.get<std::string>();
    std::string value = text == nullptr ? to_json(entry.value) : *text;
    if (value.starts_with(facts.checkpoint + "#")) {
      value = value.substr(facts.checkpoint.size() + 1);
      if (entry.key != "relative_bias")  // T5: all layers have that of layer 0
        value = without_number(value, layer);
    }
    lines +=
        "  " + entry.key + std::string(width + 2 - entry.key.size(), ' ') + printable(value) + "\n";
  }
  return lines;
}

/// The numbers of the first and of the last layer to print.
std::pair<std::int64_t, std::int64_t> layers_of(const ModelFacts::Stack& stack,
                                                const ModelArgs& args) {
  if (args.layer) return {*args.layer, *args.layer};
  return {0, stack.layers - 1};
}

/// Layers with the same keys are printed together.
std::string stack_text(const ModelFacts::Stack& stack, const ModelArgs& args,
                       const ModelLayers& model) {
  Grouped<std::int64_t> groups;
  const auto [first, last] = layers_of(stack, args);
  for (std::int64_t layer = first; layer <= last; ++layer)
    groups.add(keys_of(model.job(stack.name, layer), model.facts(), layer), layer);
  std::string text;
  for (const auto& [keys, members] : groups.groups()) {
    const auto digits = [](std::int64_t layer) { return std::to_string(layer); };
    text += stack.name + (stack.name.empty() ? "" : " ") +
            (members.size() == 1 ? "layer " : "layers ") + join(members, ", ", digits) + ":\n" +
            keys;
  }
  return text;
}

/// A line for each layer.
std::string stack_json(const ModelFacts::Stack& stack, const ModelArgs& args,
                       const ModelLayers& model) {
  std::string lines;
  const auto [first, last] = layers_of(stack, args);
  for (std::int64_t layer = first; layer <= last; ++layer)
    lines += "{\"model_type\":" + json_quoted(model.facts().model_type) +
             (stack.name.empty() ? "" : ",\"stack\":" + json_quoted(stack.name)) +
             ",\"layer\":" + std::to_string(layer) +
             ",\"job\":" + job_json(model.job(stack.name, layer), -1) + "}\n";
  return lines;
}

int inspect_model(const ModelArgs& args) {
  TensorFiles files(reading_limits(args.limits, FileAccess::map));
  const ModelLayers model(args.folder, files);
  const ModelFacts& facts = model.facts();
  std::string text;
  if (!args.json) {
    text = "model_type  " + printable(facts.model_type) + "\ntensors     " +
           printable(facts.checkpoint) + "\n";
    for (const ModelFacts::Stack& stack : facts.stacks)
      text += "layers      " + std::to_string(stack.layers) +
              (stack.name.empty() ? "" : " (" + stack.name + ")") + "\n";
  }
  for (const ModelFacts::Stack& stack : facts.stacks)
    text += args.json ? stack_json(stack, args, model) : stack_text(stack, args, model);
  print(text);
  return 0;
}

}  // namespace

Command model_command() {
  const auto args = std::make_shared<ModelArgs>();
  Command inspect;
  inspect.name = "inspect";
  inspect.summary = "print the attention of each layer as keys of a job";
  inspect.description =
      "Prints each attention layer of a model as the job that attn run --model DIR --layer N "
      "computes, without the hidden states, and checks the shapes of its tensors. Layers with the "
      "same keys are printed together; # is the number of the layer.";
  inspect.example = "  attn model inspect Qwen3-0.6B --layer 3";
  inspect.options = {
      required(positional("DIR", args->folder, "folder of config.json and model.safetensors")),
      integer("--layer", args->layer, {.min = 0}, "N", "this layer only"),
      flag("--json", args->json, "print one JSON object per layer, each on its own line")};
  add_limit_options(inspect, args->limits);
  inspect.action = [args] { return inspect_model(*args); };

  Command command;
  command.description =
      "Shows how attn reads the attention layers of a model: a folder of config.json and "
      "model.safetensors or model.safetensors.index.json, as Hugging Face's transformers saves it.";
  command.example = inspect.example;
  command.subcommands = {inspect};
  command.extra_hint = "attn model inspect DIR shows a model";
  command.action = []() -> int {
    fail_usage("expected a subcommand: inspect; see 'attn model --help'");
  };
  return command;
}

}  // namespace attn
