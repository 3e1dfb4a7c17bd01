// Jobs of the attention layers of a model: a folder with config.json and its tensors, as Hugging
// Face's transformers saves it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/job/job.h"

namespace attn {

/// What a job from a model requires of its hidden states.
struct HiddenStates {
  std::size_t width = 0;      ///< 0: unknown, or checked already
  std::string subject;        ///< "--hidden" or "hidden"
  std::string checkpoint;     ///< whose weights have this width
  std::int64_t layers = 0;    ///< of the model
  std::string of_layer = {};  ///< the name to give if the file has the states of all layers; or ""
  Shape shape = {};           ///< of the hidden states, if Q, K and V were computed from them
};

/// The model that a document names.
struct ModelReference {
  std::string folder;
  std::string stack;  ///< "" if the document has none
};

/// Checks the values of a document with the key model, and that the keys which this requires are
/// there. Errors: usage, data.
ModelReference model_of(const Document& document);

/// Replaces the keys model, layer, stack, hidden and hidden_is of a document by the explicit job:
/// hidden becomes the embeddings, or queries, keys and values computed from them, and the other
/// keys follow from the model. Keys that the document has already are kept. Returns nullopt if the
/// document has no key model. Errors: usage, data, no_input; also if the document has several
/// layers (model/layer_series.h).
std::optional<HiddenStates> expand_model(Document& document, TensorFiles& files);

/// The hidden states of a document's entry. Errors: as TensorFiles::read(); data, for random
/// tensors.
Tensor read_hidden(const Entry& hidden, TensorFiles& files);

/// Checks the hidden states of a job made from the expanded document. Sets the warning of the job
/// if the first axis may be that of the layers: if the batch has as many items as the model has
/// layers, or one more. Errors: data, if they have other axes or another width.
void check_hidden(const std::optional<HiddenStates>& hidden, Job& job);

/// The job of a document, which expand_model() makes explicit. Errors: as expand_model(),
/// make_job() and check_hidden().
Job read_job(Document document, TensorFiles& files);

/// A job with what prepare_job() makes of it.
struct CheckedJob {
  Job job;
  PreparedJob prepared;
};

/// The job of a document with the outputs that it lists. Errors: as read_job() and prepare_job().
CheckedJob read_checked_job(Document document, TensorFiles& files);

/// What is known about a model.
struct ModelFacts {
  std::string model_type;
  std::string checkpoint;  ///< the .safetensors file or the index
  struct Stack {
    std::string name;  ///< encoder, decoder or cross; "" if there is only one
    std::int64_t layers = 0;
  };
  std::vector<Stack> stacks;
};

class Model;

/// The layers of one model. Its configuration is read once, and stays charged to the budget of
/// `files`, which outlives this.
class ModelLayers {
 public:
  /// Errors: as expand_model().
  ModelLayers(const std::string& folder, TensorFiles& files);
  ~ModelLayers();

  const ModelFacts& facts() const { return facts_; }
  /// The number of layers. Errors: data, if the model has no such stack.
  std::int64_t count(const std::string& stack) const;
  /// Errors: data, if the stack has no such layer.
  void require_layer(const std::string& stack, std::int64_t layer) const;
  /// The job of a layer, without embeddings. Errors: as expand_model() and check_shapes().
  Document job(const std::string& stack, std::int64_t layer) const;

 private:
  std::string folder_;
  TensorFiles& files_;
  std::unique_ptr<const Model> model_;
  ModelFacts facts_;
};

}  // namespace attn
