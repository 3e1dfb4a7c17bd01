// The options of attn run, and what follows from them for every job.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "attn/cli/executor.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/run.h"
#include "attn/cli/run_progress.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/show.h"
#include "attn/job/job.h"
#include "attn/run/warnings.h"

namespace attn {

/// The options as typed.
struct RunArgs {
  std::string job;
  JobFlags flags;
  ShowArgs show;
  NanPolicy nan = NanPolicy::warn;
  LimitArgs limits;
  bool no_clobber = false, durable = false;
  bool dry_run = false;
  std::size_t threads = 0;
  RunViewArgs views;
  ProgressStyle progress = ProgressStyle::automatic;
  Executor* executor = &local_executor();
};

Destination destination_of(const RunArgs& args);
OutputPolicy policy_of(const RunArgs& args);

/// The limits of the process. Errors: usage.
ReadLimits limits_of(const RunArgs& args);

/// Sets the number of threads of the kernels.
void set_threads_of(const RunArgs& args);

/// The job file with the flags. Errors: as read_document() and apply_job_flags(); usage, if there
/// is neither.
Document document_of(const RunArgs& args, TensorFiles& files);

/// The outputs to write. -o NAME=FILE replaces the default outputs of a job and adds to those of
/// its file. Errors: usage, for an output of --outputs that is not written, unless there are views.
std::vector<Request> outputs_of(const Job& job, const Destination& destination, bool has_views);

/// Whether anything that is written stores provenance, which needs digests of the inputs.
bool needs_description(const Destination& destination, const RunArgs& args);

/// Whether any output is JSON or CSV, which need memory for the text. (NumPy's text is summarised.)
bool has_text(const Destination& destination, const std::string& format);

/// Errors: usage, if the name of a result of a model has a placeholder other than {layer}.
void require_placeholders(const std::vector<OutputTarget>& targets);

/// Throws if a file cannot be written. Does not open pipes and devices, because that may block.
void require_writable(const std::vector<OutputTarget>& targets,
                      const std::vector<std::string>& outputs, const OutputPolicy& policy);

/// The rows of a job that the kernels count; 0 if the reference path computes it.
std::size_t counted_rows(const PreparedJob& prepared);

/// Whether progress is shown as a bar, if it is shown.
bool shows_bar(const RunArgs& args);

/// Shows the progress of a run with these rows and operations. nullptr if it is not to be shown, or
/// as a bar of a run that takes far less than a second.
std::unique_ptr<RunProgress> progress_of(const RunArgs& args, std::size_t rows, double flops);

/// Whether --dry-run prints JSON.
bool prints_json(const RunArgs& args);

}  // namespace attn
