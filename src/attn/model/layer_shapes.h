// Whether the tensors of a layer have the shapes that its configuration requires.
#pragma once

#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/model/architectures.h"
#include "attn/model/layer_job.h"

namespace attn {

/// Checks the weights of the projections of a layer, whose keys set_layer() has set. Those that fit
/// each other may have heads of another width than the configuration implies, as long as it does
/// not state one. Errors: data, for the first tensor of another shape than the configuration
/// requires, if they do not fit.
void require_projections(const Architecture& architecture, const LayerJob& layer);

/// Prepares the layer's job for the hidden states of one token. `document` has the keys of the
/// layer. Weights of projections are not read. `is_cross`: keys and values come from other hidden
/// states. Errors: data, as require_shapes(), make_job() and prepare_job(), for the first tensor of
/// another shape.
void check_shapes(Document document, const LayerJob& layer, bool is_cross, TensorFiles& files);

}  // namespace attn
