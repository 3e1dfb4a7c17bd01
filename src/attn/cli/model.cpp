#include "attn/cli/model.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/text.h"
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

/// The text with '#' for the number of the layer in the names of tensors.
std::string without_number(std::string text, std::int64_t layer) {
  const std::string number = "." + std::to_string(layer) + ".";
  for (std::size_t at = text.find(number); at != std::string::npos; at = text.find(number, at))
    text.replace(at, number.size(), ".#.");
  return text;
}

/// "  heads            4": each key on its own line; tensors without the name of their file.
std::string keys_of(const Document& document, const ModelFacts& facts, std::int64_t layer) {
  std::size_t width = 0;
  for (const Entry& entry : document.entries) width = std::max(width, entry.key.size());
  std::string lines;
  for (const Entry& entry : document.entries) {
    const std::string* text = entry.value.get<std::string>();
    std::string value = text == nullptr ? to_json(entry.value) : *text;
    if (value.starts_with(facts.checkpoint + "#"))
      value = without_number(value.substr(facts.checkpoint.size() + 1), layer);
    lines +=
        "  " + entry.key + std::string(width + 2 - entry.key.size(), ' ') + printable(value) + "\n";
  }
  return lines;
}

/// Layers with the same keys are printed together.
std::string layers_text(const std::vector<std::int64_t>& layers, const ModelArgs& args,
                        const ModelFacts& facts, TensorFiles& files) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> groups;
  for (const std::int64_t layer : layers) {
    const std::string keys = keys_of(layer_document(args.folder, layer, files), facts, layer);
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& each) { return each.first == keys; });
    if (group == groups.end())
      groups.push_back({keys, {layer}});
    else
      group->second.push_back(layer);
  }
  std::string text;
  for (const auto& [keys, members] : groups) {
    const auto digits = [](std::int64_t layer) { return std::to_string(layer); };
    text +=
        (members.size() == 1 ? "layer " : "layers ") + join(members, ", ", digits) + ":\n" + keys;
  }
  return text;
}

int inspect_model(const ModelArgs& args) {
  TensorFiles files(reading_limits(args.limits, FileAccess::map));
  const ModelFacts facts = model_facts(args.folder, files);
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < facts.layers; ++layer) layers.push_back(layer);
  if (args.layer) layers = {*args.layer};
  if (args.json) {
    for (const std::int64_t layer : layers)
      print("{\"model_type\":" + json_quoted(facts.model_type) +
            ",\"layer\":" + std::to_string(layer) +
            ",\"job\":" + job_json(layer_document(args.folder, layer, files), -1) + "}\n");
    return 0;
  }
  print("model_type  " + printable(facts.model_type) + "\ntensors     " +
        printable(facts.checkpoint) + "\nlayers      " + std::to_string(facts.layers) + "\n" +
        layers_text(layers, args, facts, files));
  return 0;
}

}  // namespace

Command model_command() {
  const auto args = std::make_shared<ModelArgs>();
  Command inspect;
  inspect.name = "inspect";
  inspect.summary = "print the attention of each layer as keys of a job";
  inspect.description =
      "Prints what is understood of the attention layers of a model: the keys of the job that "
      "attn run --model DIR --layer N computes, without the hidden states. Layers with the same "
      "keys are printed together; # is the number of the layer.";
  inspect.example = "  attn model inspect Qwen3-0.6B --layer 3";
  inspect.options = {
      required(positional("DIR", args->folder, "folder of config.json and model.safetensors")),
      integer("--layer", args->layer, {.min = 0}, "N", "this layer only"),
      flag("--json", args->json, "print one JSON object per layer, each on its own line")};
  add_limit_options(inspect, args->limits);
  inspect.action = [args] { return inspect_model(*args); };

  Command command;
  command.description =
      "Prints what is understood of a model: a folder of config.json and model.safetensors or "
      "model.safetensors.index.json, as Hugging Face's transformers saves it.";
  command.example = inspect.example;
  command.subcommands = {inspect};
  command.action = []() -> int {
    fail_usage("expected a subcommand: inspect; see 'attn model --help'");
  };
  return command;
}

}  // namespace attn
