#include "attn/cli/run_views.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/cli/rendering.h"
#include "attn/cli/view_options.h"
#include "attn/core/output_table.h"
#include "attn/io/descriptor.h"

namespace attn {
namespace {

enum class StepsFormat { markdown, html, latex };

StepsFormat steps_format(const std::string& path) {
  if (path == "-" || path.ends_with(".md")) return StepsFormat::markdown;
  if (path.ends_with(".html")) return StepsFormat::html;
  if (path.ends_with(".tex")) return StepsFormat::latex;
  throw Error(ErrorKind::usage,
              "--explain " + printable(path) + ": expected a name that ends in .md, .html or .tex");
}

std::string written(const WorkedSteps& steps, StepsFormat format) {
  return format == StepsFormat::markdown ? markdown_of(steps)
         : format == StepsFormat::html   ? html_of(steps)
                                         : latex_of(steps);
}

/// The memory of a page of steps, which contains a picture of one head.
std::size_t bytes_of_steps(const PlannedOutput& weights, const Job& job) {
  const Shape one_head{*(weights.shape.end() - 2), weights.shape.back()};
  const std::size_t picture =
      rendering_bytes(one_head, weights.dtype, job.tokens, RenderFormat::svg, {});
  return picture + picture / 2;  // and a copy while the page is built
}

}  // namespace

bool RunViewArgs::has_file() const {
  return (!view.empty() && view != "-") || (!explain.empty() && explain != "-");
}

void add_view_options(Command& command, RunViewArgs& args) {
  command.add(in_group(
      "Results",
      {view_option(args.view,
                   "draw the weights as a heat map on the terminal, or as a picture or page with "
                   "--view=FILE.svg, .png or .html"),
       text("--explain", args.explain, "FILE",
            "write each stage with its formula and numbers for one query to FILE.md, .html or "
            ".tex; - is Markdown on stdout"),
       integer("--explain-query", args.choice.query, {}, "I",
               "query to explain; default: the first"),
       integer("--explain-head", args.choice.head, {}, "I", "head to explain; default: 0")}));
  command.add(in_group("Results", terminal_options(args.style)));
  command.requirements.push_back(
      {{"--color", "--width"}, "--view on the terminal", [&args] { return args.view == "-"; }});
  command.requirements.push_back({{"--explain-query", "--explain-head"}, "--explain"});
}

RunViews::RunViews(const RunViewArgs& args, std::vector<OutputPath> results,
                   const OutputPolicy& policy)
    : args_(args) {
  if (!args.view.empty()) results.push_back({"--view", args.view});
  if (!args.explain.empty()) results.push_back({"--explain", args.explain});
  refuse_duplicates(results);
  if (!args.view.empty()) {
    render_format(args.view);
    view_streams_ = is_stream(args.view);
    view_.emplace(args.view, policy);
  }
  if (!args.explain.empty()) {
    steps_format(args.explain);
    explain_streams_ = is_stream(args.explain);
    explain_.emplace(args.explain, policy);
  }
}

std::vector<std::string> RunViews::outputs(const Job& job) const {
  std::vector<std::string> names;
  if (explain_) names = explained_outputs(job);
  if (view_)
    for (const Output output :
         {Output::masked_scores, Output::weights})  // masked_scores for the hidden keys
      names.emplace_back(name_of(output));
  return names;
}

std::size_t RunViews::bytes(const Job& job, const Plan& plan) const {
  std::size_t bytes = 0;
  for (const PlannedOutput& output : plan.outputs) {
    if (output.name != name_of(Output::weights)) continue;
    if (view_)
      bytes = rendering_bytes(output.shape, output.dtype, job.tokens, render_format(args_.view),
                              args_.style);
    if (explain_ && steps_format(args_.explain) == StepsFormat::html)
      bytes = std::max(bytes, bytes_of_steps(output, job));
  }
  return bytes;
}

std::string RunViews::flags() const {
  return view_ && explain_ ? "--view and --explain"
         : view_           ? "--view"
         : explain_        ? "--explain"
                           : "";
}

void RunViews::write(const Job& job, const Result& result, bool streams) {
  if (explain_ && explain_streams_ == streams) {
    const WorkedSteps steps = explain(job, result.outputs, args_.choice);
    explain_->write(written(steps, steps_format(args_.explain)));
    explain_->finish();
  }
  if (!view_ || view_streams_ != streams) return;
  const ResultFile file{result.outputs, result.tokens, result.made_by};
  const HeatSource source = heat_source(file, std::string(name_of(Output::weights)), "result");
  PageSet set = page_set(source, {}, "result");
  set.key.reset();  // there is no file to read from
  view_->write(render({set}, render_format(args_.view), args_.style));
  view_->finish();
}

void RunViews::commit() {
  if (explain_ && !explain_streams_) explain_->commit();
  if (view_ && !view_streams_) view_->commit();
}

}  // namespace attn
