// Refuses a batch with --force whose outputs would replace files that its jobs read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/batch/batch_context.h"
#include "attn/batch/jobs.h"
#include "attn/batch/shard.h"
#include "attn/io/used_files.h"

namespace attn {

/// Existing files that outputs may replace, and their names.
using ReplacedFiles = std::map<FileId, std::string>;

/// Reads the jobs in advance, and notes their inputs (io/used_files.h), without reading these. Adds
/// the results of this shard that are folders to `replaced`. A job that cannot be read will fail
/// when it runs. Errors: cannot_create, if a replaced file is an input of any job.
void refuse_replaced_inputs(const std::vector<JobFile>& files, const BatchContext& context,
                            const Shard& shard, ReplacedFiles replaced);

/// Errors: cannot_create, if the output that `flag` names would be the result of a job.
void refuse_name_of_result(const std::vector<JobFile>& files, const Naming& naming,
                           const std::string& flag, const std::string& path);

}  // namespace attn
