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

#include <string>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The outputs asked for, by name (kOutputNames), in the order asked. Ranks are the user's: 2-D
/// tensors in, 2-D results out (with a head axis in front where heads were asked for).
/// Errors: usage for an output that this problem does not have (`output` without W_O), data.
TensorMap attend(const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs);

}  // namespace attn
