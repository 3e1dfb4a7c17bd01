// The flags that set keys of a job (job/fields.h): the same for every subcommand that takes jobs.
#pragma once

#include <map>
#include <string>

#include "attn/job/document.h"
#include "attn/result/nan.h"

namespace CLI {
class App;
}

namespace attn {

/// What was typed.
struct JobFlags {
  std::map<std::string, std::string> texts;     ///< key -> text, of the flags that were given
  std::map<std::string, std::string> switches;  ///< the same for --causal; empty: not given
};

/// Declares a flag for each key that has one; `flags` outlives the parsing.
void add_job_flags(CLI::App& app, JobFlags& flags);

/// Declares --nan.
void add_nan_option(CLI::App& app, NanPolicy& policy);

/// Puts what was typed into `document`. Errors: usage, data.
void apply_job_flags(const JobFlags& flags, Document& document);

}  // namespace attn
