// Names of result files, and the conflicts that they can cause.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/batch/item.h"
#include "attn/batch/job_files.h"
#include "attn/batch/shard.h"

namespace attn {

struct Naming {
  std::string folder;   ///< the output folder, without a trailing slash
  std::string pattern;  ///< may contain {stem}, {index} and {job}
  std::string suffix;   ///< ".npz"; "/" for a folder with one .npy per output

  /// Relative to `folder`. {stem}: the job file's name without its last suffix; {index}: the item's
  /// number; {job}: the job file's relative path without suffix. Errors: usage, if the name would
  /// be outside `folder`.
  std::string name_of(const Item& item) const;
  std::string path_of(const Item& item) const { return folder + "/" + name_of(item); }
};

/// Errors: usage, for an unknown word in braces. If the jobs are lines of standard input, the
/// pattern must contain {index}, and neither {stem} nor {job}.
void check_pattern(const std::string& pattern, bool jobs_are_lines);

/// Errors: usage, naming two jobs whose results could not both exist: they have the same name, or
/// one is a file where the other needs a folder.
void refuse_clashes(const std::vector<JobFile>& files, const Naming& naming);

struct ExistingResults {
  std::size_t count = 0;
  std::string first;  ///< path of the first one
};

/// Results of this shard's jobs that exist. With suffix "/", the file names depend on the jobs and
/// are not checked. Errors: cannot_create, if a result is a job file of any shard (also through
/// links).
ExistingResults existing_results(const std::vector<JobFile>& files, const Naming& naming,
                                 const Shard& shard);

}  // namespace attn
