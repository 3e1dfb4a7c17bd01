// The flags that set keys of a job (job/fields.h): the same for every subcommand that takes jobs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/cli/command.h"
#include "attn/job/document.h"
#include "attn/result/nan.h"

namespace attn {

/// What was typed.
struct JobFlags {
  std::map<std::string, std::string> texts;     ///< key -> text, of the flags that were given
  std::map<std::string, std::string> switches;  ///< the same for --causal; empty: not given
};

/// An option for each key that has a flag; `flags` outlives the parsing.
std::vector<Option> job_options(JobFlags& flags);

/// --nan
Option nan_option(NanPolicy& policy);

/// Puts what was typed into `document`. Errors: usage, data.
void apply_job_flags(const JobFlags& flags, Document& document);

}  // namespace attn
