// attn run: typed flags and a job file -> Document -> Job -> Result -> files, or text.
#include <CLI/CLI.hpp>
#include <memory>

#include "attn/cli/command.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/limit_options.h"
#include "attn/cli/run_views.h"
#include "attn/core/attention.h"
#include "attn/core/fast.h"
#include "attn/io/csv.h"
#include "attn/job/job.h"
#include "attn/job/limits.h"
#include "attn/job/nan.h"
#include "attn/job/output.h"
#include "attn/report/numpy_text.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

/// What was typed.
struct RunArgs {
  std::string job;
  JobFlags flags;
  std::vector<std::string> outputs;  ///< -o
  std::string format;                ///< "" is text
  NanPolicy nan = NanPolicy::warn;
  LimitArgs limits;
  bool repr = false;
  bool force = false, no_clobber = false, durable = false;
  bool dry_run = false;
  std::size_t threads = 0;
  RunViewArgs views;
};

Document document_of(const RunArgs& args, TensorFiles& files) {
  Document document;
  if (!args.job.empty()) document = read_document(args.job, files);
  apply_job_flags(args.flags, document);
  if (document.entries.empty())
    throw Error(
        ErrorKind::usage,
        "expected a job file or tensors (--q, --k, --v or --embeddings, ...); see 'attn run "
        "--help'");
  return document;
}

OutputPolicy policy_of(const RunArgs& args, const TensorFiles& files) {
  OutputPolicy policy;
  policy.force = args.force;
  policy.durable = args.durable;
  for (const auto& [path, file] : files.files()) policy.inputs.insert(path);
  return policy;
}

/// "scores (4, 4): raw similarity Q K^T", then the array as NumPy prints it.
std::string as_text(const Result& result, bool repr) {
  std::string text;
  for (const auto& [name, tensor] : result.outputs) {
    text += (text.empty() ? "" : "\n") + name + " " + to_string(tensor.shape());
    for (const OutputName& output : kOutputNames)
      if (name == output.name) text += ": " + std::string(output.what);
    text += "\n" + (repr ? numpy_repr(tensor) : numpy_str(tensor)) + "\n";
  }
  return text;
}

std::string as_csv(const Result& result) {
  if (result.outputs.size() != 1)
    throw Error(ErrorKind::usage, "--format csv holds one output; choose it with --outputs");
  const auto& [name, tensor] = *result.outputs.begin();
  return to_csv(tensor, name);
}

void show(const Result& result, const RunArgs& args) {
  const std::optional<Format> format = format_of_suffix("." + args.format);
  if (format == Format::npy && result.outputs.size() != 1)
    throw Error(ErrorKind::usage, "--format npy holds one output; choose it with --outputs");
  if (format == Format::npy || format == Format::npz || format == Format::safetensors) {
    OutputFile out("-", {});
    write_tensors(result.outputs, result, *format, out);
    return out.commit();
  }
  print(args.format == "json"     ? result_json(result, 2) + "\n"
        : args.format == "ndjson" ? result_json(result, -1) + "\n"
        : args.format == "csv"    ? as_csv(result)
                                  : as_text(result, args.repr));
}

void append_missing(std::vector<std::string>& names, const std::vector<std::string>& more) {
  for (const std::string& name : more)
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

Result only(const Result& result, const std::vector<std::string>& names) {
  Result part{{}, result.tokens, result.made_by};
  for (const std::string& name : names) part.outputs.set(name, result.outputs.at(name));
  return part;
}

struct Targets {
  std::vector<OutputTarget> files;
  bool on_stdout = false;
};

/// Whether any output is JSON or CSV, whose digits take memory (NumPy's text is summarised).
bool has_text(const Targets& targets, const std::string& format) {
  const auto is_text = [](const OutputTarget& target) {
    return target.format == Format::json || target.format == Format::csv;
  };
  return std::any_of(targets.files.begin(), targets.files.end(), is_text) ||
         (targets.on_stdout && (format == "json" || format == "ndjson" || format == "csv"));
}

Targets targets_of(const RunArgs& args) {
  Targets targets{{}, args.outputs.empty() && args.views.empty()};
  for (const std::string& typed : args.outputs) {
    if (typed == "-")
      targets.on_stdout = true;
    else
      targets.files.push_back(parse_target(typed));
  }
  if (!targets.on_stdout && !args.format.empty())
    throw Error(ErrorKind::usage, "--format: goes with standard output; a file's suffix says it");
  if (args.repr && (!targets.on_stdout || (!args.format.empty() && args.format != "text")))
    throw Error(ErrorKind::usage, "--repr: goes with text on standard output only");
  return targets;
}

/// What is written: the job's outputs, or those that -o NAME=FILE names, all of which are added.
std::vector<std::string> outputs_of(const Job& job, const Document& document,
                                    const Targets& targets) {
  std::vector<std::string> outputs = job.outputs;
  const std::vector<std::string> named = outputs_named(targets.files);
  if (document.find("outputs") == nullptr && !targets.on_stdout && !named.empty()) outputs = named;
  for (const OutputTarget& target : targets.files)
    if (!target.name.empty()) append_missing(outputs, {target.name});
  return outputs;
}

int run(const RunArgs& args) {
  if (args.force && args.no_clobber)
    throw Error(ErrorKind::usage, "--no-clobber keeps what --force replaces");
  const Targets targets = targets_of(args);
  const ReadLimits limits = limits_of(args.limits);
  TensorFiles files(limits);
  const Document document = document_of(args, files);
  Job job = make_job(document, files);
  const std::vector<std::string> outputs = outputs_of(job, document, targets);
  job.outputs = outputs;
  RunViews views(args.views, policy_of(args, files));
  append_missing(job.outputs, views.outputs(job));

  PreparedJob prepared = prepare_job(job, document);
  Plan& plan = prepared.plan;
  if (has_text(targets, args.format)) add_text(plan);
  if (args.dry_run) {
    print(args.format == "json" || args.format == "ndjson" ? plan_json(plan) + "\n"
                                                           : plan_text(plan));
    return 0;
  }
  require_memory(plan, document.name, limits.memory);
  ResultWriter writer(targets.files, outputs, policy_of(args, files));
  set_threads(args.threads);
  const Result computed = run_job(job, prepared, document, files);
  const Result result = only(computed, outputs);
  const std::string nan = nan_warning(job, result, args.nan);
  writer.write(result);
  writer.commit();
  if (targets.on_stdout) show(result, args);
  views.write(job, computed);
  if (!nan.empty()) note("warning: " + nan);
  return 0;
}

int run_unless_there(const RunArgs& args) {
  try {
    return run(args);
  } catch (const ExistsAlready& error) {
    if (!args.no_clobber) throw;
    note(std::string(error.what()) + "; nothing was done");
    return 0;
  }
}

}  // namespace

Action add_run(CLI::App& app) {
  const auto args = std::make_shared<RunArgs>();
  app.description(
      "Computes attention for one job.\n\n"
      "Example:\n"
      "  attn run job.json\n"
      "  attn run --q q.npy --k k.npy --v v.npy --heads 8 --causal -o result.npz\n"
      "  attn run --embeddings x.npy --wq model.npz#W_Q --wk model.npz#W_K -o weights=w.npy");
  app.add_option("JOB", args->job, "job file (.json, .npz or .safetensors); - is standard input");
  add_job_flags(app, args->flags);
  app.add_option("-o,--output", args->outputs,
                 "where results go: FILE.npz, .safetensors, .json, .npy or .csv, FOLDER/, or "
                 "NAME=FILE for one "
                 "output; repeatable; default: text on stdout")
      ->type_name("[NAME=]PATH")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Results");
  app.add_option("--format", args->format,
                 "on stdout: text, json, ndjson, csv, npz, npy or safetensors")
      ->check(CLI::IsMember({"text", "json", "ndjson", "csv", "npz", "npy", "safetensors"}))
      ->type_name("WORD")
      ->group("Results");
  add_view_options(app, args->views);
  app.add_flag("--repr", args->repr, "text as repr(): array([...])")->group("Results");
  app.add_flag("--force", args->force, "replace output files that exist")->group("Results");
  app.add_option("--threads", args->threads, "at most N threads; default: one a processor")
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->group("Results");
  app.add_flag("--no-clobber", args->no_clobber, "do nothing where an output file exists")
      ->group("Results");
  app.add_flag("--durable", args->durable, "results outlast a power cut (fsync)")->group("Results");
  app.add_flag("--dry-run", args->dry_run,
               "show shapes, memory and arithmetic of the outputs; compute and write nothing")
      ->group("Results");
  add_nan_option(app, args->nan);
  add_limit_options(app, args->limits);
  return [args] { return run_unless_there(*args); };
}

}  // namespace attn
