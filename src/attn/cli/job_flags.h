// Options that set keys of a job (job/fields.h), shared by all commands that accept jobs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/cli/command.h"
#include "attn/job/document.h"
#include "attn/run/warnings.h"

namespace attn {

/// The values of job options, as text.
struct JobFlags {
  std::map<std::string, std::string> texts;  ///< by key; only options that were given
  std::vector<std::string> only;             ///< keys of the job file to use; empty: all
};

/// --only, and an option for each key that has a flag; `flags` outlives the parsing.
std::vector<Option> job_options(JobFlags& flags);

/// --nan
Option nan_option(NanPolicy& policy);

/// Sets the keys of `document` that were given as options. Errors: usage, data.
void apply_job_flags(const JobFlags& flags, Document& document, ReadBudget& budget);

/// The job of a file, if `path` is not empty, and of flags. Errors: as read_document() and
/// apply_job_flags().
Document job_document(const std::string& path, const JobFlags& flags, TensorFiles& files);

/// Errors: usage, if --compute was given with a word other than bf16: where results are compared
/// with a reference in f64, only that word has an effect.
void require_bf16_compute(const JobFlags& flags);

/// The tokens given with a flag such as --tokens: "A,B", a JSON array of strings, or "@FILE", a
/// file with one token per line or a JSON array. Errors: usage; as read_file(); data, if the file
/// takes more memory than `budget` has left.
std::vector<std::string> tokens_of_flag(const std::string& text, const std::string& flag,
                                        ReadBudget& budget);

}  // namespace attn
