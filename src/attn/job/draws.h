// A list of steps: random tensors in the order in which a program draws them. A job has one under
// "draws"; 'attn random' reads one from a file.
//
//   [{"randn": {"shape": [8, 32]}, "to": "embeddings"},
//    {"Linear": {"in_features": 32, "out_features": 16}, "to": "W_Q"},
//    {"seed": 7}, {"rand": {"shape": [16]}}]
//
// A step is an object: {"seed": ...} restarts the stream; any other one calls a random method. "to"
// is the name that the tensor gets, or a list of different names for its parts along the first
// axis, without that axis. Without "to" the tensor is drawn and discarded.
//
// In a job, names are those of inputs. Linear gives its weight to W_Q, W_K, W_V, W_O or W_gate and
// its bias to b_Q, ..., whatever weights_layout is. With a list, each input gets an equal part of
// the layer's outputs. MultiheadAttention has no "to": it gives all weights and biases.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/io/json_write.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct DrawStep {
  std::optional<Json> seed = {};
  Json spec = {};  ///< of draw() in job/random_spec.h; without a seed
  std::vector<std::string> to = {};
};

/// Errors: data.
DrawStep parse_step(const Json& step);

/// The tensors of a step by their names; the parameters of a layer are "TO.weight", "TO.bias", ...
/// `drawn` is the result of draw(step.spec, ...). Errors: data.
TensorMap named_tensors(const DrawStep& step, const TensorMap& drawn);

/// The tensors that a job gets from a step, by their keys.
struct DrawnInputs {
  TensorMap tensors;
  bool in_out = false;       ///< they are weights with the axes (in, out), and biases
  bool needs_heads = false;  ///< they do not state the number of heads
};

/// Errors: data, for names that are not inputs or cannot take it.
DrawnInputs inputs_of(const DrawStep& step, const TensorMap& drawn);

}  // namespace attn
