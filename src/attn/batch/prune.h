// --prune: removes the results of job files that no longer exist.
#pragma once

#include <string>
#include <vector>

#include "attn/batch/item.h"
#include "attn/batch/jobs.h"
#include "attn/batch/manifest.h"

namespace attn {

/// Whether a job in a manifest is a file, not a line, and the file does not exist.
bool is_deleted_file(const std::string& job);

struct PruneReport {
  std::vector<Outcome> removed;   ///< one per job, with the files that were removed
  std::vector<std::string> kept;  ///< a message for each file that was not removed
};

/// Removes the files that `manifest` lists as results of a job, if that job is not one of `files`,
/// its job file does not exist, and the result is unchanged and does not belong to one of `files`.
/// Then removes folders that became empty. With `dry_run`, only reports what would be removed.
/// Errors: io.
PruneReport prune_results(const Manifest& manifest, const std::vector<JobFile>& files,
                          const Naming& naming, bool dry_run);

}  // namespace attn
