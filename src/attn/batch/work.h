// Runs one item of a batch.
#pragma once

#include <string>

#include "attn/batch/batch_context.h"
#include "attn/batch/item.h"
#include "attn/batch/pool.h"

namespace attn {

/// Reads, computes and writes the item, or skips it if it is already done. `text_buffer` is empty
/// and becomes the outcome's text. An Error becomes a failed outcome; BrokenPipe is thrown.
Outcome work_on(const Item& item, const BatchContext& context, const CompletionToken& token,
                std::string text_buffer = {});

}  // namespace attn
