// attn run: typed flags and a job file -> Document -> Job -> Result -> files, or text.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <set>

#include "attn/cli/command.h"
#include "attn/core/attention.h"
#include "attn/io/csv.h"
#include "attn/job/fields.h"
#include "attn/job/job.h"
#include "attn/job/nan.h"
#include "attn/job/output.h"
#include "attn/report/numpy_text.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

/// What was typed.
struct RunArgs {
  std::string job;
  std::map<std::string, std::string> flags;     ///< key -> text, of the flags that were given
  std::map<std::string, std::string> switches;  ///< the same for --causal; empty: not given
  std::vector<std::string> outputs;             ///< -o
  std::string format;                           ///< "" is text
  std::string nan = "warn";
  bool repr = false;
  bool force = false;
};

std::string group_of(const Field& field) {
  if (field.form == FieldForm::tensor) return "Tensors";
  for (const char* group : {"position.", "rotary.", "qk_norm"})
    if (field.key.rfind(group, 0) == 0) return "Positions";
  return field.apply ? "Attention" : "Job";
}

std::string help_of(const Field& field) {
  std::string text = field.what;
  if (field.form != FieldForm::word) return text;
  text += ":";
  for (std::size_t i = 0; i < field.words.size(); ++i)
    text += (i == 0 ? " " : i + 1 == field.words.size() ? " or " : ", ") + field.words[i];
  return text;
}

void add_field(CLI::App& app, const Field& field, RunArgs& args) {
  CLI::Option* option = nullptr;
  if (field.form == FieldForm::boolean) {
    // It may stand alone; a value needs '=', as what follows may be the job file.
    option = app.add_flag(field.flag + "{true}", args.switches[field.key], help_of(field));
  } else {
    const auto store = [&args, key = field.key](const std::string& text) {
      args.flags[key] = text;
    };
    option = app.add_option_function<std::string>(field.flag, store, help_of(field));
    option->type_name(field.placeholder);
  }
  option->group(group_of(field));
}

/// What was typed for a field, or nullptr.
const std::string* given(const RunArgs& args, const Field& field) {
  const auto flag = args.flags.find(field.key);
  if (flag != args.flags.end()) return &flag->second;
  const auto on = args.switches.find(field.key);
  return on == args.switches.end() || on->second.empty() ? nullptr : &on->second;
}

Document document_of(const RunArgs& args, TensorFiles& files) {
  Document document;
  if (!args.job.empty()) document = read_document(args.job, files);
  for (const Field& field : job_fields()) {
    const std::string* text = given(args, field);
    if (text == nullptr) continue;
    document.set({field.key, value_of_flag(field, *text, field.flag), field.flag, "", true});
  }
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
  if (args.format == "npz" || args.format == "npy") {
    const Format format = args.format == "npz" ? Format::npz : Format::npy;
    if (format == Format::npy && result.outputs.size() != 1)
      throw Error(ErrorKind::usage, "--format npy holds one output; choose it with --outputs");
    OutputFile out("-", {});
    write_tensors(result.outputs, result, format, out);
    return out.commit();
  }
  print(args.format == "json"     ? result_json(result, 2) + "\n"
        : args.format == "ndjson" ? result_json(result, -1) + "\n"
        : args.format == "csv"    ? as_csv(result)
                                  : as_text(result, args.repr));
}

int run(const RunArgs& args) {
  std::vector<OutputTarget> targets;
  bool on_stdout = args.outputs.empty();
  for (const std::string& typed : args.outputs) {
    if (typed == "-")
      on_stdout = true;
    else
      targets.push_back(parse_target(typed));
  }
  if (!on_stdout && !args.format.empty())
    throw Error(ErrorKind::usage, "--format: goes with standard output; a file's suffix says it");
  if (args.repr && (!on_stdout || (!args.format.empty() && args.format != "text")))
    throw Error(ErrorKind::usage, "--repr: goes with text on standard output only");
  TensorFiles files;
  const Document document = document_of(args, files);
  Job job = make_job(document, files);
  if (document.find("outputs") == nullptr && !on_stdout) {
    const std::vector<std::string> named = outputs_named(targets);
    if (!named.empty()) job.outputs = named;
  }
  for (const OutputTarget& target : targets)
    if (!target.name.empty() &&
        std::find(job.outputs.begin(), job.outputs.end(), target.name) == job.outputs.end())
      job.outputs.push_back(target.name);

  ResultWriter writer(targets, job.outputs, policy_of(args, files));
  const Result result = run_job(job, document, files);
  const std::string nan = nan_report(job, result);
  if (!nan.empty() && args.nan == "refuse") throw Error(ErrorKind::data, nan);
  writer.write(result);
  if (on_stdout) show(result, args);
  if (!nan.empty() && args.nan == "warn") note("warning: " + nan);
  return 0;
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
  app.add_option("JOB", args->job, "job file (.json or .npz); - is standard input");
  for (const Field& field : job_fields())
    if (!field.flag.empty()) add_field(app, field, *args);
  app.add_option("-o,--output", args->outputs,
                 "where results go: FILE.npz, .json, .npy or .csv, FOLDER/, or NAME=FILE for one "
                 "output; repeatable; default: text on stdout")
      ->type_name("[NAME=]PATH")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Results");
  app.add_option("--format", args->format, "on stdout: text, json, ndjson, csv, npz or npy")
      ->check(CLI::IsMember({"text", "json", "ndjson", "csv", "npz", "npy"}))
      ->type_name("WORD")
      ->group("Results");
  app.add_flag("--repr", args->repr, "text as repr(): array([...])")->group("Results");
  app.add_flag("--force", args->force, "replace output files that exist")->group("Results");
  app.add_option("--nan", args->nan, "NaN in a result: warn, allow or refuse (exit 65)")
      ->check(CLI::IsMember({"warn", "allow", "refuse"}))
      ->type_name("WORD")
      ->group("Results");
  return [args] { return run(*args); };
}

}  // namespace attn
