#include "attn/model/model_job.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/json_tensor.h"
#include "attn/job/field_value.h"
#include "attn/job/fields.h"
#include "attn/job/job.h"
#include "attn/model/architectures.h"
#include "attn/model/layer_series.h"
#include "attn/model/layer_shapes.h"

namespace attn {
namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// The folder of a model, from its path or from that of its config.json. Errors: data, for another
/// file.
std::string folder_at(std::string path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    const std::filesystem::path file = path;
    const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
    if (file.filename() == "config.json") return folder;
    fail_data({.where = {path},
               .expected = "the folder of a model",
               .found = "a file",
               .hint = is_there(folder + "/config.json") ? "give " + printable(folder) : ""});
  }
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// The file of all tensors. Errors: no_input.
std::string checkpoint_in(const std::string& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (is_there(folder + "/" + name)) return folder + "/" + name;
  const bool has_pickle =
      is_there(folder + "/pytorch_model.bin") || is_there(folder + "/pytorch_model.bin.index.json");
  throw Error(ErrorKind::no_input,
              Problem{.where = {folder},
                      .message = "has no model.safetensors and no model.safetensors.index.json",
                      .hint = has_pickle ? "save the model with save_pretrained() of a current "
                                           "version of transformers"
                                         : ""});
}

/// "model.layers.3." from "layers.#.".
std::string with_number(std::string_view pattern, std::int64_t layer) {
  std::string text(pattern);
  const std::size_t place = text.find('#');
  return place == std::string::npos ? text : text.replace(place, 1, std::to_string(layer));
}

/// What GPTQ and AWQ, compressed-tensors and HQQ store in place of "weight".
constexpr const char* kPackedWeights[] = {"qweight", "weight_packed", "W_q"};

/// The method of the quantisation that the configuration states: "gptq"; "" if none.
std::string quantisation_in(const Json& config) {
  const Json* const object = config.find("quantization_config");
  const Json* const method = object == nullptr || object->get<JsonObject>() == nullptr
                                 ? nullptr
                                 : object->find("quant_method");
  const auto name = method == nullptr ? nullptr : method->get<std::string>();
  return name == nullptr ? "" : printable(*name);
}

}  // namespace

/// A folder whose config.json has been read.
class Model {
 public:
  Model(const std::string& folder, TensorFiles& files) : folder_(folder_at(folder)), files_(files) {
    const std::string path = folder_ + "/config.json";
    const Json& json = files.document(path);
    if (json.get<JsonObject>() == nullptr)
      fail_data({.where = {path}, .expected = "an object", .found = json.kind()});
    const Config whole(json, path);
    model_type_ = whole.text("model_type", "");
    quantisation_ = quantisation_in(json);
    checkpoint_ = checkpoint_in(folder_);
    stacks_ = stacks_of(model_type_);
    if (stacks_.empty()) refuse_type(path);
    const std::optional<Config> text_config = whole.object("text_config");
    config_.emplace(text_config ? *text_config : whole);
  }

  const std::string& model_type() const { return model_type_; }
  const std::string& checkpoint() const { return checkpoint_; }
  const std::vector<const Architecture*>& stacks() const { return stacks_; }

  /// Errors: data, if the model has stacks and `name` is not one, or if it has none.
  const Architecture& stack(const std::string& name) const {
    for (const Architecture* stack : stacks_)
      if (stack->stack == name) return *stack;
    fail_data({.where = {config_->name()},
               .message = stacks_.size() > 1 ? "the model has several stacks of layers"
                                             : "the model has only one stack of layers",
               .hint = stacks_.size() > 1
                           ? "give stack " + join_or(texts_of(stacks_, &Architecture::stack))
                           : "remove stack"});
  }

  std::int64_t layers(const Architecture& stack) const { return config_->count(stack.layers_keys); }

  /// Errors: data, if the stack has no such layer.
  void require_layer(const Architecture& stack, std::int64_t number) const {
    if (number < layers(stack)) return;
    fail_data({.where = {config_->name()},
               .message = "the model has " +
                          counted(static_cast<std::size_t>(layers(stack)), "layer") +
                          ", from 0 to " + std::to_string(layers(stack) - 1) + "; found layer " +
                          std::to_string(number)});
  }

  LayerJob layer(const Architecture& stack, std::int64_t number, bool with_norm) const {
    require_layer(stack, number);
    const std::string root = root_of(stack, number);
    LayerJob job(*config_, number, checkpoint_, quantisation_, root,
                 root + with_number(stack.layer, number), files_);
    set_layer(stack, with_norm, job);
    return job;
  }

 private:
  /// The first of the architecture's roots under which the layer has a weight of queries.
  std::string root_of(const Architecture& stack, std::int64_t number) const {
    const std::string base = with_number(stack.layer, number) + std::string(stack.weights.q) + ".";
    const std::string name = base + "weight";
    for (const std::string_view root : stack.roots)
      if (files_.stored(checkpoint_, std::string(root) + name)) return std::string(root);
    for (const std::string_view root : stack.roots)
      for (const char* packed : kPackedWeights)
        if (files_.stored(checkpoint_, std::string(root) + base + packed))
          throw quantised_error(checkpoint_, std::string(root) + name,
                                std::string("stored as ") + packed, quantisation_);
    fail_data({.where = {checkpoint_},
               .message = "has no tensor '" + printable(std::string(stack.roots.front()) + name) +
                          "', which model_type '" + printable(model_type_) + "' requires"});
  }

  [[noreturn]] void refuse_type(const std::string& path) const {
    if (model_type_.empty())
      fail_data({.where = {path},
                 .subject = "model_type",
                 .expected = "the name of an architecture",
                 .found = "none"});
    fail_data({.where = {path},
               .subject = "model_type",
               .message = "'" + printable(model_type_) + "' is not supported",
               .hint = "write the job by hand: {\"embeddings\": \"HIDDEN\", \"weights_layout\": "
                       "\"out-in\", \"W_Q\": \"" +
                       printable(checkpoint_) +
                       "#NAME\", \"W_K\": ..., \"W_V\": ..., \"W_O\": ..., \"heads\": ..., "
                       "\"causal\": true}"});
  }

  std::string folder_;
  TensorFiles& files_;
  std::string model_type_, quantisation_, checkpoint_;
  std::vector<const Architecture*> stacks_;
  std::optional<Config> config_;
};

namespace {

/// Errors: usage if only flags are at fault, otherwise data.
[[noreturn]] void refuse_keys(const Document& document, const Entry& model,
                              const std::string& message, const std::string& hint = "") {
  const bool only_flags = std::all_of(document.entries.begin(), document.entries.end(),
                                      [](const Entry& entry) { return entry.from_flag; });
  throw Error(only_flags ? ErrorKind::usage : ErrorKind::data,
              Problem{.where = {model.origin},
                      .subject = model.from_flag ? "" : model.key,
                      .message = message,
                      .hint = hint});
}

/// "--stack", or "stack" if the model is a key of a file.
std::string name_of_key(const Entry& model, const char* key) {
  return model.from_flag ? find_field(key)->flag : std::string(key);
}

void check_model_keys(const Document& document, const Entry& model) {
  const auto name = [&](const char* key) { return name_of_key(model, key); };
  for (const char* key : {"layer", "hidden"})
    if (document.find(key) == nullptr)
      refuse_keys(document, model, "requires " + name(key),
                  std::string_view(key) == "layer"
                      ? ""
                      : "the input of the layer, such as hidden_states[N] of transformers; "
                        "docs/models.md shows how to get it");
  for (const char* key : {"embeddings", "Q", "K", "V"})
    if (document.find(key) != nullptr)
      refuse_keys(document, model,
                  "cannot be combined with " + name(key) + "; give " + name("hidden"));
  const Entry* const stack = document.find("stack");
  const bool is_cross = stack != nullptr && *stack->value.get<std::string>() == "cross";
  const bool has_memory = document.find("memory") != nullptr;
  if (is_cross && !has_memory)
    refuse_keys(
        document, model,
        name("stack") + " cross requires " + name("memory") + ", the output of the encoder");
  if (has_memory && !is_cross)
    refuse_keys(document, model, name("memory") + " requires " + name("stack") + " cross");
}

}  // namespace

Tensor read_hidden(const Entry& hidden, TensorFiles& files) {
  if (hidden.value.get<JsonObject>() != nullptr)
    fail_data(
        {.where = where_of(hidden), .expected = "numbers or a file", .found = "a random tensor"});
  if (hidden.numbers) return *hidden.numbers;
  const auto text = hidden.value.get<std::string>();
  return within(hidden.origin, [&] {
    return text != nullptr ? files.read(parse_tensor_ref(path_in(hidden.folder, *text)))
                           : tensor_from_json(hidden.value, "");
  });
}

ModelReference model_of(const Document& document) {
  const Entry& model = document.at("model");
  check_values(document);
  check_model_keys(document, model);
  const std::string& text = *model.value.get<std::string>();
  if (text.empty()) refuse_keys(document, model, "expected a folder, found an empty string");
  const Entry* const stack = document.find("stack");
  return {path_in(model.folder, text), stack == nullptr ? "" : *stack->value.get<std::string>()};
}

namespace {

/// Whether the first axis can be that of the layers.
bool may_have_layers(const HiddenStates& hidden, const Shape& shape) {
  return !hidden.of_layer.empty() && (shape[0] == static_cast<std::size_t>(hidden.layers) ||
                                      shape[0] == static_cast<std::size_t>(hidden.layers) + 1);
}

/// Errors: data, unless the shape is (L, M) or (B, L, M).
void require_axes(const HiddenStates& hidden, const Shape& shape) {
  if (shape.size() == 2 || shape.size() == 3) return;
  const bool has_layers = shape.size() == 4 && may_have_layers(hidden, shape);
  fail_data({.where = {hidden.subject},
             .expected = "hidden states (L, M) or (B, L, M)",
             .found = to_string(shape),
             .hint = has_layers ? "select one layer: '" + printable(hidden.of_layer) + "'" : ""});
}

/// Gives a key a tensor in memory. Its text says how it was computed.
void set_computed(const char* key, const Tensor& tensor, Document& document) {
  Entry entry = document.at(key);
  entry.value = Json{"numbers of shape " + to_string(tensor.shape()) + ", " +
                     *entry.value.get<std::string>()};
  entry.numbers = std::make_shared<const Tensor>(tensor);
  document.set(std::move(entry));
}

/// Whether the document has keys that replace the model's heads or weights.
bool replaces_projections(const Document& document) {
  constexpr const char* kKeys[] = {"heads", "kv_heads", "weights_layout", "W_Q", "W_K",
                                   "W_V",   "W_O"};
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&](const char* key) { return document.find(key) != nullptr; });
}

}  // namespace

std::optional<HiddenStates> expand_model(Document& document, TensorFiles& files) {
  const Entry* const model = document.find("model");
  if (model == nullptr) return std::nullopt;
  const ModelReference reference = model_of(document);
  const Entry* const hidden_is = document.find("hidden_is");
  const bool with_norm = hidden_is == nullptr || *hidden_is->value.get<std::string>() == "raw";
  const Json& number = document.at("layer").value;
  if (number.is_array() || word_of(number) != nullptr)
    refuse_keys(document, *model,
                "only attn run and attn batch accept several layers in " +
                    name_of_key(*model, "layer") + "; give one number");
  const Model opened(reference.folder, files);
  const Architecture& stack = opened.stack(reference.stack);
  const LayerJob layer = opened.layer(stack, integer_of(number), with_norm);
  if (!replaces_projections(document)) require_projections(stack, layer);
  HiddenStates hidden{.width = layer.hidden_width(),
                      .subject = name_of_key(*model, "hidden"),
                      .checkpoint = opened.checkpoint(),
                      .layers = opened.layers(stack)};
  Entry embeddings = document.at("hidden");
  embeddings.key = "embeddings";
  if (const auto name = embeddings.value.get<std::string>();
      name != nullptr && !embeddings.numbers) {
    if (!names_layer(*name) && !name->ends_with(']'))
      hidden.of_layer = element_of(*name, integer_of(number));
    embeddings.value = Json{name_of_layer(*name, integer_of(number))};
  }
  for (const char* key : {"model", "layer", "stack", "hidden", "hidden_is"}) document.erase(key);
  std::optional<LatentTensors> computed;
  if (layer.latent()) {
    embeddings.key = "hidden";
    const Tensor states = read_hidden(embeddings, files);
    hidden.shape = states.shape();
    require_axes(hidden, hidden.shape);
    computed = latent_tensors(*layer.latent(), states, hidden.subject, files);
    hidden.width = 0;
  } else {
    document.set(std::move(embeddings));
  }
  for (const auto& [key, value] : layer.keys())
    if (document.find(key) == nullptr)
      document.set({.key = key, .value = value, .origin = layer.config().name(), .folder = ""});
  if (computed)
    for (const auto& [key, tensor] :
         {std::pair{"Q", &computed->Q}, std::pair{"K", &computed->K}, std::pair{"V", &computed->V}})
      set_computed(key, *tensor, document);
  return hidden;
}

namespace {

/// Errors: data, if the embeddings have other axes or another width than the hidden states need.
void require_width(const HiddenStates& hidden, const Job& job) {
  if (hidden.width == 0) return;
  const Shape& shape = at(job.tensors, Input::embeddings).shape();
  require_axes(hidden, shape);
  if (shape.back() == hidden.width) return;
  fail_data({.where = {hidden.subject},
             .expected = "hidden states of width " + std::to_string(hidden.width) +
                         ", as the layers of " + printable(hidden.checkpoint),
             .found = to_string(shape)});
}

std::string warn_layers_as_batch(const HiddenStates& hidden, const Job& job) {
  const Shape& shape =
      hidden.shape.empty() ? at(job.tensors, Input::embeddings).shape() : hidden.shape;
  if (shape.size() != 3 || shape[0] < 2 || !may_have_layers(hidden, shape)) return "";
  return hidden.subject + ": " + to_string(shape) + " is a batch of " + std::to_string(shape[0]) +
         " sequences; if these are the hidden states of all layers, " + "select one layer: '" +
         printable(hidden.of_layer) + "'";
}

}  // namespace

void check_hidden(const std::optional<HiddenStates>& hidden, Job& job) {
  if (!hidden) return;
  require_width(*hidden, job);
  job.hidden_warning = warn_layers_as_batch(*hidden, job);
}

Job read_job(Document document, TensorFiles& files) {
  const std::optional<HiddenStates> hidden = expand_model(document, files);
  Job job = make_job(std::move(document), files);
  check_hidden(hidden, job);
  return job;
}

CheckedJob read_checked_job(Document document, TensorFiles& files) {
  Job job = read_job(std::move(document), files);
  PreparedJob prepared = prepare_job(job);
  return {std::move(job), std::move(prepared)};
}

ModelLayers::ModelLayers(const std::string& folder, TensorFiles& files)
    : folder_(folder),
      files_(files),
      model_(std::make_unique<const Model>(folder, files)),
      facts_{model_->model_type(), model_->checkpoint(), {}} {
  for (const Architecture* stack : model_->stacks())
    facts_.stacks.push_back({std::string(stack->stack), model_->layers(*stack)});
}

ModelLayers::~ModelLayers() = default;

std::int64_t ModelLayers::count(const std::string& stack) const {
  return model_->layers(model_->stack(stack));
}

void ModelLayers::require_layer(const std::string& stack, std::int64_t layer) const {
  model_->require_layer(model_->stack(stack), layer);
}

Document ModelLayers::job(const std::string& stack, std::int64_t layer) const {
  const LayerJob job = model_->layer(model_->stack(stack), layer, true);
  require_projections(model_->stack(stack), job);
  Document document;
  document.name = folder_;
  for (const auto& [key, value] : job.keys())
    document.set({.key = key, .value = value, .origin = folder_, .folder = ""});
  check_shapes(document, job, stack == "cross", files_);
  return document;
}

}  // namespace attn
