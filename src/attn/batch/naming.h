// What each item's results are called.
#pragma once

#include <string>
#include <vector>

#include "attn/batch/item.h"
#include "attn/batch/job_files.h"

namespace attn {

struct Naming {
  std::string folder;   ///< the output folder, without a slash at its end
  std::string pattern;  ///< {stem}, {index} and {job} stand for what is the item's own
  std::string suffix;   ///< ".npz"; "/" for a folder with an .npy an output

  /// Below `folder`. {stem}: the job file's name without its last suffix; {index}: the item's
  /// number, from 1; {job}: its path below the folder named, without suffix, so that folders are
  /// kept. Errors: usage, where the name would lie outside `folder`.
  std::string name_of(const Item& item) const;
  std::string path_of(const Item& item) const { return folder + "/" + name_of(item); }
};

/// Errors: usage, for a word in braces that stands for nothing, and, where `lines` says that items
/// have no file, for a pattern without {index}.
void check_pattern(const std::string& pattern, bool lines);

/// Errors: usage, naming two items that would have one name.
void refuse_clashes(const std::vector<JobFile>& files, const Naming& naming);

}  // namespace attn
