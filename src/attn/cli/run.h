// attn run: computes one job, and draws (--view) or explains (--explain) its results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/cli/command.h"
#include "attn/cli/rendering.h"
#include "attn/explain/explain.h"
#include "attn/io/staged_file.h"
#include "attn/run/output_target.h"
#include "attn/run/result.h"

namespace attn {

class Executor;

/// The options as typed; "" if not given.
struct RunViewArgs {
  std::string view;     ///< "-": the terminal
  std::string explain;  ///< FILE.html, .md, .tex or .txt; "-": text on standard output
  ExplainChoice choice;
  RenderStyle style;    ///< of --view and --explain on the terminal
  std::string subject;  ///< "MODEL, layer 3", for the title of a drawing; "" for other jobs
  std::optional<std::int64_t> layer;  ///< of the model
  bool empty() const { return view.empty() && explain.empty(); }
  bool has_file() const;  ///< any output that is not the terminal
};

/// The output that --view draws: the weights or, if the job lists outputs without them, the first
/// of these.
Request drawn_output(const Job& job);

/// --view, --explain and their companions, in the group "Results".
void add_view_options(Command& command, RunViewArgs& args);

/// Opens its files immediately, so that errors are reported before anything is computed. `results`
/// are the files of the results, which must be different ones. `drawn` is drawn_output(). Errors:
/// usage, cannot_create, permission.
class RunViews {
 public:
  RunViews(const RunViewArgs& args, const Request& drawn, std::vector<OutputPath> results,
           const OutputPolicy& policy);

  /// The outputs that have to be computed.
  std::vector<Request> outputs(const Job& job) const;
  /// An upper bound of the memory for views and explanations; `plan` contains outputs().
  std::size_t bytes(const Job& job, const Plan& plan) const;
  std::string flags() const;  ///< "--view and --explain"; "" for neither
  /// write_files() writes to temporary files, which commit() renames. write_streams() writes to
  /// terminals and pipes.
  void write_files(const Job& job, const Inputs& in, const Result& result) {
    write(job, in, result, false);
  }
  void commit();
  void write_streams(const Job& job, const Inputs& in, const Result& result) {
    write(job, in, result, true);
  }

 private:
  void write(const Job& job, const Inputs& in, const Result& result, bool streams);
  void print_note() const;
  bool shows_steps() const;  ///< of the weights, on a page

  RunViewArgs args_;
  Request drawn_;
  std::optional<OutputFile> view_, explain_;
  bool view_streams_ = false, explain_streams_ = false;
  std::string view_note_;  ///< about a page, for when its file is there
};

/// Computes a job for --view and --explain alone. Returns the exit code. Errors: as 'attn run'.
int run_job_views(const std::string& job, const RunViewArgs& views, bool force);

Command run_command(Executor& executor);

}  // namespace attn
