// What `attn run` makes for the eye beside its results: --view and --explain.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/cli/command.h"
#include "attn/cli/rendering.h"
#include "attn/explain/explain.h"
#include "attn/io/output_file.h"
#include "attn/job/job.h"
#include "attn/result/output_target.h"

namespace attn {

/// As typed; "" is not given.
struct RunViewArgs {
  std::string view;     ///< "-": the terminal
  std::string explain;  ///< FILE.md, .html or .tex; "-": Markdown on standard output
  ExplainChoice choice;
  RenderStyle style;  ///< of --view on the terminal
  bool empty() const { return view.empty() && explain.empty(); }
  bool has_file() const;  ///< anything beside the terminal
};

/// --view, --explain and their companions, in the group "Results".
void add_view_options(Command& command, RunViewArgs& args);

/// Opens its files at once, so that what can't be written is known before anything is computed.
/// `results` are the files that it may not share. Errors: usage, cannot_create, permission.
class RunViews {
 public:
  RunViews(const RunViewArgs& args, std::vector<OutputPath> results, const OutputPolicy& policy);

  /// What has to be computed for them.
  std::vector<std::string> outputs(const Job& job) const;
  /// What they take beside those, at most; `plan` has them all.
  std::size_t bytes(const Job& job, const Plan& plan) const;
  std::string flags() const;  ///< "--view and --explain"; "" for neither
  /// Those that go to files come first, whole but for their names, which commit() gives; then
  /// those that a terminal or a pipe gets.
  void write_files(const Job& job, const Result& result) { write(job, result, false); }
  void commit();
  void write_streams(const Job& job, const Result& result) { write(job, result, true); }

 private:
  void write(const Job& job, const Result& result, bool streams);

  RunViewArgs args_;
  std::optional<OutputFile> view_, explain_;
  bool view_streams_ = false, explain_streams_ = false;
};

}  // namespace attn
