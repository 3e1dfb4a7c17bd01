// Runs the jobs of a batch: connects the job source, the workers, the results and the report.
#pragma once

#include <atomic>

#include "attn/batch/batch_context.h"
#include "attn/batch/item.h"
#include "attn/cli/batch_options.h"

namespace attn {

/// Results go to files, which `manifest` records, or to standard output if it is nullptr. Returns
/// the exit code: 3 if some jobs failed, otherwise 0 or that of the error that ended the batch.
/// Sets `stop` when no more jobs are to be started. Ends the process if threads still compute jobs
/// over their time limit.
int run_items(const BatchArgs& args, const BatchContext& context, ItemSource& source,
              Manifest* manifest, std::atomic<bool>& stop);

}  // namespace attn
