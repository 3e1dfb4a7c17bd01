// Whether the tensors of a layer have the shapes that its configuration requires.
#pragma once

#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/model/layer_job.h"

namespace attn {

/// Prepares the layer's job for the hidden states of one token. `document` has the keys of the
/// layer. Weights of projections are not read. `is_cross`: keys and values come from other hidden
/// states. Errors: data, as require_shapes(), make_job() and prepare_job(), for the first tensor of
/// another shape.
void check_shapes(Document document, const LayerJob& layer, bool is_cross, TensorFiles& files);

}  // namespace attn
