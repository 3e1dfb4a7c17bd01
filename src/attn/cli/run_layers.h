// attn run for several layers of a model (--layer all).
#pragma once

#include "attn/cli/run_args.h"
#include "attn/job/document.h"

namespace attn {

/// Computes the layers one after the other and writes their outputs, either joined along a new
/// first axis or, if the names of results contain {layer}, in files for each layer. Joined outputs
/// always have a batch axis, too. `files` has read the document. Returns the exit code. Errors: as
/// 'attn run'; nothing is written if a layer fails.
int run_layers(const RunArgs& args, Document document, TensorFiles& files);

}  // namespace attn
