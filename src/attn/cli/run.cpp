#include "attn/cli/run.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>

#include "attn/attention/fused.h"
#include "attn/attention/score.h"
#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/rendering.h"
#include "attn/cli/run_args.h"
#include "attn/cli/run_layers.h"
#include "attn/cli/run_progress.h"
#include "attn/cli/steps_text.h"
#include "attn/cli/terminal.h"
#include "attn/cli/weight_steps.h"
#include "attn/io/format.h"
#include "attn/io/mapped_file.h"
#include "attn/io/open_file.h"
#include "attn/job/field_value.h"
#include "attn/job/fields.h"
#include "attn/job/job.h"
#include "attn/model/layer_series.h"
#include "attn/model/model_job.h"
#include "attn/problem/layout.h"
#include "attn/problem/named_masks.h"
#include "attn/problem/output_table.h"
#include "attn/problem/threads.h"
#include "attn/run/execution.h"
#include "attn/run/memory_estimate.h"
#include "attn/run/plan_text.h"
#include "attn/run/result_file.h"
#include "attn/run/result_writer.h"

namespace attn {
namespace {

/// The memory of an explanation, which contains the heat map of one head, and of visible_keys().
std::size_t bytes_of_steps(const PlannedOutput& weights, const Job& job, StepsFormat format) {
  const Shape one_head{*(weights.shape.end() - 2), weights.shape.back()};
  const RenderFormat drawn = format == StepsFormat::html ? RenderFormat::svg : RenderFormat::text;
  const std::size_t picture = rendering_bytes(one_head, weights.dtype, job, drawn, {});
  return picture + picture / 2  // and a copy while the page is built
         + element_count(weights.shape) * sizeof(bool);
}

}  // namespace

bool RunViewArgs::has_file() const {
  return (!view.empty() && view != "-") || (!explain.empty() && explain != "-");
}

void add_view_options(Command& command, RunViewArgs& args) {
  command.add(in_group(
      "Results",
      {common(view_option(
           args.view,
           "draw the weights or, if they are not requested, the first output, as a heat map on "
           "the terminal, or to FILE" +
               std::string(kRenderSuffixes))),
       common(text(
           "--explain", args.explain, "FILE",
           "write each stage with its formula and numbers for one query to FILE.html, .md, .tex or "
           ".txt; - is text on stdout")),
       integer("--explain-query", args.choice.query, {}, "I",
               "query to explain; default: the first, or the last if the job is causal"),
       integer("--explain-head", args.choice.head, {}, "I", "head to explain; default: 0")}));
  command.add(in_group("Results", terminal_options(args.style)));
  command.add(in_group("Results", picture_style_options(args.style)));
  command.requirements.push_back({{"--color", "--width"},
                                  "--view or --explain on the terminal",
                                  [&args] { return args.view == "-" || args.explain == "-"; }});
  add_picture_requirements(command, args.view, "--view=");
  command.requirements.push_back({{"--explain-query", "--explain-head"}, "--explain"});
}

Request drawn_output(const Job& job) {
  const Request weights = Output::weights;
  const std::vector<Request>& outputs = job.outputs;
  const bool all_differ = std::find(outputs.begin(), outputs.end(), weights) == outputs.end();
  return all_differ && job.document.find("outputs") != nullptr ? outputs.front() : weights;
}

RunViews::RunViews(const RunViewArgs& args, const Request& drawn, std::vector<OutputPath> results,
                   const OutputPolicy& policy)
    : args_(args), drawn_(drawn) {
  if (!args.view.empty()) results.push_back({"--view", args.view});
  if (!args.explain.empty()) results.push_back({"--explain", args.explain});
  refuse_duplicates(results);
  if (!args.view.empty()) {
    render_format(args.view);
    view_streams_ = is_stream(args.view);
    view_.emplace(args.view, policy);
  }
  if (!args.explain.empty()) {
    steps_format("--explain", args.explain);
    explain_streams_ = is_stream(args.explain);
    explain_.emplace(args.explain, policy);
  }
}

bool RunViews::shows_steps() const {
  return view_ && drawn_ == Request{Output::weights} &&
         render_format(args_.view) == RenderFormat::html;
}

std::vector<Request> RunViews::outputs(const Job& job) const {
  std::vector<Request> outputs;
  if (explain_) outputs = explained_outputs(job);
  if (view_) {
    outputs.emplace_back(drawn_);
    if (is_of_pairs(drawn_)) outputs.emplace_back(Output::masked_scores);  // for the hidden keys
    if (shows_steps())
      for (const Request& request : requests_of_steps(job)) outputs.push_back(request);
  }
  return outputs;
}

std::size_t RunViews::bytes(const Job& job, const Plan& plan) const {
  std::size_t bytes = 0, steps = 0;
  if (shows_steps()) {
    const std::vector<Request> stored = requests_of_steps(job);
    for (const PlannedOutput& output : plan.outputs)
      if (std::find(stored.begin(), stored.end(), output.request) != stored.end())
        steps += element_count(output.shape) * sizeof(double);
  }
  for (const PlannedOutput& output : plan.outputs) {
    if (shows_steps() && output.request == drawn_)  // add_hiding_options()
      steps += kHidingBytes * std::min(element_count(output.shape), kMostHidingOptions);
    if (view_ && output.request == drawn_)
      bytes = std::max(bytes, rendering_bytes(output.shape, output.dtype, job,
                                              render_format(args_.view), args_.style, steps));
    if (explain_ && output.request == Request{Output::weights})
      bytes =
          std::max(bytes, bytes_of_steps(output, job, steps_format("--explain", args_.explain)));
  }
  return bytes;
}

std::string RunViews::flags() const {
  return view_ && explain_ ? "--view and --explain"
         : view_           ? "--view"
         : explain_        ? "--explain"
                           : "";
}

void RunViews::write(const Job& job, const Inputs& in, const Result& result, bool streams) {
  if (explain_ && explain_streams_ == streams) {
    const WorkedSteps steps = explain(job, in, result.outputs, args_.choice);
    explain_->write(steps_text(steps, steps_format("--explain", args_.explain),
                               args_.explain == "-"
                                   ? terminal_style(args_.style.colour, args_.style.width)
                                   : TerminalStyle{}));
    explain_->finish();
  }
  if (!view_ || view_streams_ != streams) return;
  const ResultFile file{result.outputs, result.tokens, result.made_by};
  const HeatSource source = heat_source(file, std::string(name_of(drawn_)), "result");
  PageSet set = page_set(source, {}, "result");
  if (!args_.subject.empty()) set.map.title += ", " + args_.subject;
  for (HeatPanel& panel : set.map.panels)
    if (args_.layer) panel.layer = args_.layer;
  if (render_format(args_.view) == RenderFormat::html) add_weight_steps(file, source, set);
  if (set.steps) add_hiding_options(in, *set.steps);
  const Rendering drawing = render({set}, render_format(args_.view), args_.style);
  view_->write(drawing.bytes);
  view_->finish();
  view_note_ = drawing.note;
  if (streams) print_note();
}

void RunViews::print_note() const {
  if (!view_note_.empty()) note(view_note_);
}

void RunViews::commit() {
  if (explain_ && !explain_streams_) explain_->commit();
  if (!view_ || view_streams_) return;
  view_->commit();
  print_note();
}

ReadLimits limits_of(const RunArgs& args) {
  ReadLimits limits = limits_of(args.limits, *args.executor);
  limits.access = FileAccess::map;
  return limits;
}

void set_threads_of(const RunArgs& args) {
  set_threads(args.threads == 0 ? args.executor->share().threads : args.threads);
}

namespace {

/// Errors: usage, if JOB is a part of what was meant for a flag: "--outputs weights context", "-q
/// q.npy".
void check_job_argument(const RunArgs& args) {
  const std::map<std::string, std::string>& flags = args.flags.texts;
  const FormatRow* const format = format_of_suffix(args.job);
  const auto outputs = flags.find("outputs");
  std::error_code ignored;
  if (outputs != flags.end() && request_named(args.job) &&
      !std::filesystem::exists(args.job, ignored))
    fail_usage("unexpected argument '" + args.job + "'; write --outputs " +
               printable(outputs->second) + "," + args.job);
  if (is_quiet() && flags.count("Q") == 0 && format != nullptr && format->holds_one())
    fail_usage("-q means --quiet; to give the queries, write --q " + printable(args.job));
}

}  // namespace

Document document_of(const RunArgs& args, TensorFiles& files) {
  if (!args.job.empty()) check_job_argument(args);
  Document document;
  const KeySelection only = selected_keys(args.flags.only);
  if (!only.keys.empty() && args.job.empty()) fail_usage("--only requires a job file");
  if (!args.job.empty()) document = read_document(args.job, files, only);
  apply_job_flags(args.flags, document, files.budget());
  if (document.entries.empty())
    fail_usage(
        "expected a job file (- for standard input) or tensors (--q, --k, --v or --embeddings, "
        "...); see 'attn run --help'");
  return document;
}

namespace {

/// Returns those that were missing.
std::vector<Request> append_missing(std::vector<Request>& outputs,
                                    const std::vector<Request>& more) {
  std::vector<Request> missing;
  for (const Request& output : more)
    if (std::find(outputs.begin(), outputs.end(), output) == outputs.end()) {
      outputs.push_back(output);
      missing.push_back(output);
    }
  return missing;
}

/// The result without outputs that were computed for other purposes.
Result with_outputs(const Result& result, const std::vector<Request>& outputs) {
  Result part = result;
  part.outputs = {};
  for (const std::string& name : names_of(outputs))
    if (const Tensor* tensor = result.outputs.find(name)) part.outputs.set(name, *tensor);
  return part;
}

}  // namespace

Destination destination_of(const RunArgs& args) {
  return destination_of(args.show, request_names(), args.views.empty());
}

OutputPolicy policy_of(const RunArgs& args) {
  return {.force = args.show.force, .durable = args.durable};
}

bool needs_description(const Destination& destination, const RunArgs& args) {
  return !args.views.empty() || (destination.shown && args.show.format == "ndjson") ||
         std::any_of(destination.targets.begin(), destination.targets.end(),
                     [](const OutputTarget& target) {
                       return target.format != nullptr && target.format->keeps_metadata();
                     });
}

bool has_text(const Destination& destination, const std::string& format) {
  const auto is_text = [](const OutputTarget& target) {
    return target.format != nullptr && !target.format->is_binary();
  };
  return std::any_of(destination.targets.begin(), destination.targets.end(), is_text) ||
         (destination.shown && format == "ndjson");
}

std::vector<Request> outputs_of(const Job& job, const Destination& destination, bool has_views) {
  std::vector<Request> outputs = job.outputs;
  const bool only_named = !names_in(destination.targets).empty() && !destination.on_stdout;
  const Entry* const list = job.document.find("outputs");
  std::vector<std::string> names;
  for (const OutputTarget& target : destination.targets)
    if (!target.name.empty()) names.push_back(target.name);
  const std::vector<Request> named = outputs_named(names, job);
  if (only_named && list != nullptr && list->from_flag && !has_views)
    for (const Request& output : outputs)
      if (std::find(named.begin(), named.end(), output) == named.end()) {
        const std::string name(name_of(output));
        fail_usage("--outputs: '" + name + "' is not written; add -o " + name + "=FILE");
      }
  if (only_named && list == nullptr) outputs.clear();
  append_missing(outputs, named);
  return outputs;
}

void require_placeholders(const std::vector<OutputTarget>& targets) {
  for (const OutputTarget& target : targets)
    if (const std::string word = unknown_placeholder(target.path); !word.empty())
      fail_usage("-o " + printable(target.path) + ": unknown placeholder " + word +
                 "; the only one is " + std::string(kLayerWord) + ", the number of the layer");
}

void require_writable(const std::vector<OutputTarget>& targets,
                      const std::vector<std::string>& outputs, const OutputPolicy& policy) {
  std::vector<OutputTarget> files;
  std::copy_if(targets.begin(), targets.end(), std::back_inserter(files),
               [](const OutputTarget& target) { return !is_stream(target.path); });
  const ResultWriter unused(files, outputs, policy);
}

std::size_t counted_rows(const PreparedJob& prepared) {
  const Inputs& in = prepared.inputs;
  const bool is_counted = prepared.plan.path != nullptr && prepared.plan.fallback_reason == nullptr;
  return is_counted ? in.B * in.H * in.rows.size() : 0;
}

bool shows_bar(const RunArgs& args) {
  return args.progress == ProgressStyle::automatic && can_show_bar() && !is_quiet();
}

std::unique_ptr<RunProgress> progress_of(const RunArgs& args, std::size_t rows, double flops) {
  constexpr double kLeastFlops = 1e8;
  if (args.progress == ProgressStyle::plain) return std::make_unique<RunProgress>(false, rows);
  if (flops < kLeastFlops || !shows_bar(args)) return nullptr;
  return std::make_unique<RunProgress>(true, rows);
}

bool prints_json(const RunArgs& args) {
  return args.show.format == "json" || args.show.format == "ndjson";
}

namespace {

/// The precision that a flag or the job sets; explanations have no default.
std::optional<int> precision_of(const TextArgs& text) {
  for (const Document* const options : {&text.flags, &text.settings})
    if (const Entry* precision = options->find(std::string(kPrintOptions) + "precision"))
      return static_cast<int>(integer_of(precision->value));
  return std::nullopt;
}

/// Puts the number of the layer of a model in place of {layer} in the names of results.
void name_results_of_layer(const Document& document, Destination& destination) {
  const Entry* const layer = document.find("layer");
  if (layer == nullptr || document.find("model") == nullptr) return;
  require_placeholders(destination.targets);
  if (const auto number = layer->value.get<std::int64_t>())
    for (OutputTarget& target : destination.targets)
      target.path = name_of_layer(target.path, *number);
}

/// The model and the layer of a job, for the titles of drawings.
void name_subject(const Document& document, RunViewArgs& drawn) {
  const Entry *const model = document.find("model"), *const layer = document.find("layer");
  const auto text = model == nullptr ? nullptr : model->value.get<std::string>();
  if (text == nullptr) return;
  const std::filesystem::path folder = std::filesystem::path(*text) / "";
  drawn.subject = printable(folder.parent_path().filename().string());
  const auto number = layer == nullptr ? nullptr : layer->value.get<std::int64_t>();
  if (number == nullptr) return;
  drawn.layer = *number;
  drawn.subject += ", layer " + std::to_string(*number);
}

int run_job(const RunArgs& args) {
  if (const std::optional<int> code = args.executor->follow(args)) return *code;
  Destination destination = destination_of(args);
  const ReadLimits limits = limits_of(args);
  TensorFiles files(limits);
  Document document = document_of(args, files);
  if (has_several_layers(document)) return run_layers(args, std::move(document), files);
  name_results_of_layer(document, destination);
  const bool from_model = document.find("model") != nullptr;
  RunViewArgs drawn = args.views;
  name_subject(document, drawn);
  Job job = read_job(std::move(document), files);
  ShowArgs shown = args.show;
  shown.text.settings = print_settings_of(job.document);
  drawn.choice.decimals = precision_of(shown.text);
  if (destination.shown) print_options_of(shown.text);  // refuses flags without effect
  const std::vector<Request> outputs = outputs_of(job, destination, !args.views.empty());
  const std::vector<std::string> names = names_of(outputs);
  RunViews views(drawn, drawn_output(job), output_paths(destination.targets, names),
                 policy_of(args));
  job.outputs = outputs;
  job.unstored = append_missing(job.outputs, views.outputs(job));

  const bool whole = destination.shown || !args.views.empty();
  const OutputSet by_rows = whole ? OutputSet{} : outputs_for_rows(destination.targets, outputs);
  PreparedJob prepared = prepare_job(job, by_rows);
  const std::unique_ptr<PlannedRun> run = args.executor->plan(args, job, prepared, by_rows);
  const Plan& plan = prepared.plan;
  MemoryEstimate memory = run->memory();
  if (has_text(destination, args.show.format)) memory.add_output_text(plan);
  memory.add(views.flags(), views.bytes(job, plan));
  if (args.dry_run) {
    require_writable(destination.targets, names, policy_of(args));
    const bool is_json = prints_json(args);
    std::string text = is_json ? plan_json(plan, memory) : plan_text(plan, memory);
    if (is_json) text.pop_back();  // the brace
    if (const std::string rule = named_rule(prepared.inputs); !rule.empty())
      text += is_json ? ",\"mask_rule\":" + to_json(Json{rule}) : "mask_rule: " + rule + "\n";
    if (rounds_factors_to_bf16(prepared.inputs))
      text += is_json ? ",\"products\":\"bf16\"" : "products: of factors rounded to bfloat16\n";
    if (from_model)
      text += is_json ? ",\"job\":" + job_json(job.document, -1)
                      : "job:\n" + job_json(job.document, 0) + "\n";
    text += run->description(is_json);
    print(text + (is_json ? "}\n" : ""));
    return 0;
  }
  memory.require(job.document.name, limits.memory, views.flags());
  run->claim(output_paths(destination.targets, names));
  ResultWriter writer(destination.targets, names, policy_of(args));
  set_threads_of(args);
  const bool described = needs_description(destination, args);
  const bool is_delivered = destination.shown || !destination.targets.empty();
  const std::vector<Request> requested = is_delivered ? outputs : views.outputs(job);
  const ExecutionRequest request{job, prepared, described ? &files : nullptr, requested, args.nan};
  const auto [all, warnings] = run->execute(request, files, writer);
  const Result result = with_outputs(all, outputs);
  writer.write(result);
  views.write_files(job, prepared.inputs, all);
  writer.commit();
  views.commit();
  if (destination.shown)
    show(result, shown, [&](const std::string& name, const Tensor& tensor) {
      return description_of(name, has_head_axis(tensor.shape(), job.options));
    });
  views.write_streams(job, prepared.inputs, all);
  for (const std::string& warning : warnings) note("warning: " + warning);
  return 0;
}

int run_unless_there(const RunArgs& args) {
  try {
    return run_job(args);
  } catch (const ExistsAlready& error) {
    if (!args.no_clobber) throw;
    note(std::string(error.what()) + "; nothing was done");
    return 0;
  }
}

}  // namespace

int run_job_views(const std::string& job, const RunViewArgs& views, bool force) {
  RunArgs args;
  args.job = job;
  args.views = views;
  args.show.force = force;
  return run_job(args);
}

Command run_command(Executor& executor) {
  const auto args = std::make_shared<RunArgs>();
  args->executor = &executor;
  Command command;
  command.description = "Computes attention for one job.";
  command.example =
      "  attn run job.json\n"
      "  attn run --q q.npy --k k.npy --v v.npy --heads 8 --causal -o result.npz\n"
      "  attn run --embeddings x.npy --wq model.npz#W_Q -o weights=w.npy\n"
      "  attn run --model Qwen3-0.6B --layer 3 --hidden x.npy --rows -1";
  command.extra_hint =
      "give tensors with flags, as in --q q.npy --k k.npy --v v.npy, and several jobs to 'attn "
      "batch'";
  command.add(
      positional("JOB", args->job, "job file (.json, .npz or .safetensors); - for standard input"));
  command.add(job_options(args->flags));
  add_show_options(
      command, args->show, [args = args.get()] { return destination_of(*args); },
      [args = args.get()] { return !args->views.explain.empty(); });
  add_view_options(command, args->views);
  command.add(in_group(
      "Results",
      {integer("--threads", args->threads, {1, 1024}, "N",
               "maximum number of threads; default: one per processor"),
       flag("--no-clobber", args->no_clobber,
            "do nothing if an output file exists; of several layers, skip those that have one"),
       flag("--durable", args->durable,
            "flush results to disk (fsync), to survive a power failure"),
       common(flag("--dry-run", args->dry_run,
                   "show shapes, memory and cost of the outputs; compute nothing")),
       nan_option(args->nan)}));
  command.add(in_group("Results", {progress_option(args->progress)}));
  command.add(in_group("Results", executor.run_options()));
  add_limit_options(command, args->limits);
  command.requirements.push_back(
      {{"--force", "--no-clobber", "--durable"},
       "a file: -o, --view=FILE or --explain FILE",
       [args = args.get()] { return args->views.has_file() || destination_of(*args).has_file(); }});
  command.conflicts = {{"--force", "--no-clobber"}};
  command.hints = {{{"--head"}, "'attn view RESULT' has --head; --heads sets the number of heads"}};
  command.action = [args] { return run_unless_there(*args); };
  return command;
}

}  // namespace attn
