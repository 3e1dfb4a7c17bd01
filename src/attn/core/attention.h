// Attention, every stage kept that is asked for: the reference that everything fast is held to.
//
//   scores  = Q K^T                                   (or another score function)
//   weights = softmax(scale * scores + bias, over the keys that are visible)
//   context = weights V
//
// Vaswani et al. 2017, eq. 1 (arXiv:1706.03762). Grouped heads: Ainslie et al. 2023
// (arXiv:2305.13245), query head h reads key/value head h / (H / G). Bahdanau et al. 2015
// (arXiv:1409.0473) for encoder-decoder attention: Q from the decoder, K = V from the encoder.
//
// Integers are exact (int64; overflow is Error(data), never a wrap) up to and including `scores`;
// the scaling makes them floats. A hidden key contributes nothing, even where its value is NaN or
// infinite; a visible NaN goes through to the result.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/core/rounding.h"
#include "attn/core/row_block.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// What each output is called, in the order in which they are computed; its shape and meaning.
struct OutputName {
  std::string_view name;
  const char* shape;
  const char* what;
};
inline constexpr std::array<OutputName, 21> kOutputNames = {{
    {"positions", "(L, M)", "the positional encoding alone"},
    {"inputs", "(B, L, M)", "embeddings after embedding scale and positional encoding"},
    {"W_Q_heads", "(H, M, D)", "W_Q's columns, head by head"},
    {"W_K_heads", "(G, Mk, D)", "W_K's columns, head by head"},
    {"W_V_heads", "(G, Mk, Dv)", "W_V's columns, head by head"},
    {"queries", "(B, H, L, D)", "what each token looks for: X W_Q + b_Q, or Q as given"},
    {"keys", "(B, G, S, D)", "what each token is found by: X W_K + b_K, or K as given"},
    {"values", "(B, G, S, Dv)", "what each token passes on: X W_V + b_V, or V as given"},
    {"present_K", "(B, G, S, D)", "the past's keys, then the new ones: the next step's past_K"},
    {"present_V", "(B, G, S, Dv)", "the past's values, then the new ones"},
    {"scores", "(B, H, L, S)", "how well each query (row) meets each key (column): Q K^T"},
    {"scaled_scores", "(B, H, L, S)", "scores times scale, then softcap"},
    {"masked_scores", "(B, H, L, S)", "scaled scores plus mask; hidden keys are -inf"},
    {"weights", "(B, H, L, S)", "how much each query (row) attends to each key (column)"},
    {"mean_weights", "(B, L, S)", "weights averaged over the heads"},
    {"key_weights", "(B, H, S)", "weights added up over the queries: what each key is given"},
    {"row_max", "(B, H, L)", "the largest masked score of each query"},
    {"logsumexp", "(B, H, L)", "log of the sum of exp(masked_scores), per query"},
    {"head_context", "(B, H, L, Dv)", "weights V, head by head"},
    {"context", "(B, L, H*Dv)", "weights V, the values mixed by their weights; heads side by side"},
    {"output", "(B, L, Mo)", "context W_O + b_O"},
}};

/// The outputs that this problem has: those of kOutputNames that make sense for its tensors, then
/// the given tensors by their own names.
std::vector<std::string> available_outputs(const TensorMap& tensors, const Options& options);

/// Errors: usage, for each name that is no output, or none that this problem has (`output` without
/// W_O).
void check_outputs(const std::vector<std::string>& outputs, const TensorMap& tensors,
                   const Options& options);

/// An output with all its letters (kOutputNames; context as head_context) in the shape that the
/// user's tensors give it.
Tensor as_given(std::string_view name, const Tensor& full, const Inputs& in,
                const Options& options);

/// The outputs asked for, by name, in the order asked. Ranks are the user's: 2-D tensors in, 2-D
/// results out, with a head axis in front where heads were asked for; axes L hold the `rows` asked
/// for. A given tensor's own name gives it back as it was. Only what the outputs need is computed.
/// Errors: usage for an output that this problem does not have (`output` without W_O), data.
TensorMap attend(const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs);

/// The same of a problem that make_inputs() has proved and outputs that check_outputs() has passed.
/// Outputs that have a sink go there and are not among the results; those that plan() calls
/// streamed go as their rows are finished, the others when they are whole. `overflows`: what
/// rounding them made infinite.
TensorMap attend(const Inputs& in, const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs, const RowSinks& sinks = {},
                 Overflows* overflows = nullptr);

}  // namespace attn
