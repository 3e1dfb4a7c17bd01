// Jobs of the attention layers of a model: a folder with config.json and its tensors, as Hugging
// Face's transformers saves it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/io/tensor_file.h"
#include "attn/job/document.h"

namespace attn {

/// Replaces the keys model, layer, stack, hidden and hidden_is of a document by the explicit job:
/// hidden becomes the embeddings, and the other keys follow from the model. Keys that the document
/// has already are kept. Returns false if the document has no key model. Errors: usage, data,
/// no_input.
bool expand_model(Document& document, TensorFiles& files);

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
ModelFacts model_facts(const std::string& folder, TensorFiles& files);

/// The job of a layer, without embeddings. Errors: as expand_model().
Document layer_document(const std::string& folder, const std::string& stack, std::int64_t layer,
                        TensorFiles& files);

}  // namespace attn
