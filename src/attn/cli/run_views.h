// What `attn run` makes for the eye beside its results: --view and --explain.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/io/file.h"
#include "attn/job/explain.h"
#include "attn/job/job.h"
#include "attn/job/output_target.h"

namespace CLI {
class App;
}

namespace attn {

/// As typed; "" is not given.
struct RunViewArgs {
  std::string view;     ///< "-": the terminal
  std::string explain;  ///< FILE.md, .html or .tex; "-": Markdown on standard output
  ExplainChoice choice;
  bool empty() const { return view.empty() && explain.empty(); }
};

void add_view_options(CLI::App& app, RunViewArgs& args);

/// Opens its files at once, so that what can't be written is known before anything is computed.
/// `results` are the files that it may not share. Errors: usage, cannot_create, permission.
class RunViews {
 public:
  RunViews(const RunViewArgs& args, std::vector<OutputPlace> results, const OutputPolicy& policy);

  /// What has to be computed for them.
  std::vector<std::string> outputs(const Job& job) const;
  void write(const Job& job, const Result& result);

 private:
  RunViewArgs args_;
  std::optional<OutputFile> view_, explain_;
};

}  // namespace attn
