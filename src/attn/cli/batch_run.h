// The jobs of a batch at work: on which threads, where results go, what is told.
#pragma once

#include <atomic>

#include "attn/batch/batch_context.h"
#include "attn/batch/item.h"
#include "attn/cli/batch_options.h"

namespace attn {

/// Results go to the manifest's folder, or, without a manifest, to standard output. Gives the exit
/// code: 3 where some jobs failed, otherwise 0 or that of what ended the batch. `stop` is set when
/// no more are wanted. Where threads still compute what nobody wants, the program ends here.
int run_items(const BatchArgs& args, const BatchContext& context, ItemSource& source,
              Manifest* manifest, std::atomic<bool>& stop);

}  // namespace attn
