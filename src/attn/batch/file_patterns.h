// Jobs whose inputs are separate files with corresponding names: q_1.npy, k_1.npy, v_1.npy.
#pragma once

#include <string>
#include <vector>

#include "attn/batch/jobs.h"

namespace attn {

/// The file of one input of each job. {} in its name stands for the same text in all of them.
struct FilePattern {
  std::string key;   ///< "Q"
  std::string file;  ///< "q_{}.npy", or "a_{}.npz" of "a_{}.npz#q"
  std::string part;  ///< "#q", or ""
};

/// From "KEY=FILE", or "FILE" for Q, K and V in this order. Errors: usage, for an unknown key, for
/// one that is given twice, and if no file has {}.
std::vector<FilePattern> parse_file_patterns(const std::vector<std::string>& words);

/// A job for each text that {} matches in at least one of the patterns, in natural order. A pattern
/// without {} is an input of all jobs. The path of a job is its file of the first pattern with {};
/// `relative` is the text with a suffix, so that {stem} in --name is the text. A job of which a
/// file is missing will fail. Errors: no_input, if there are none.
std::vector<JobFile> jobs_of_patterns(const std::vector<FilePattern>& patterns);

}  // namespace attn
