// attn merge: combines attention over parts of the keys.
#include "attn/attention/merge.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/emit.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/tensor_names.h"
#include "attn/cli/terminal.h"
#include "attn/job/recorded_options.h"
#include "attn/problem/output_table.h"
#include "attn/run/result_file.h"

namespace attn {
namespace {

struct MergeArgs {
  std::vector<std::string> parts;
  std::vector<std::string> as;
  double lse_base = std::numbers::e;
  bool is_empty_positive = false;  ///< the logsumexp of a query that sees no key is +inf
  EmitArgs emit;
  LimitArgs limits;
};

/// Errors: usage, if --as gives a name that parts do not have.
void check_as(const std::vector<std::string>& as) {
  std::vector<std::string> known;
  for (const Output output :
       {Output::logsumexp, Output::head_context, Output::context, Output::weights})
    known.emplace_back(name_of(output));
  for (const std::string& entry : as) {
    const std::size_t equals = entry.rfind('=');
    if (equals == std::string::npos)
      fail_usage("--as: expected TENSOR=NAME, found '" + printable(entry) + "'");
    const std::string name = entry.substr(equals + 1);
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_usage("--as: expected " + join(known, ", ") + ", found '" + printable(name) + "'" +
                 did_you_mean(name, known, NameKind::output));
  }
}

/// Replaces an infinity of this sign by the other one.
void replace_infinity(Tensor& logsumexp, double sign) {
  const DType dtype = logsumexp.dtype();
  logsumexp = cast(logsumexp, DType::f64);
  for (double& x : logsumexp.mutable_data<double>())
    if (x == sign * HUGE_VAL) x = -x;
  logsumexp = cast(logsumexp, dtype);
}

std::string base_text(double base) { return base == 2 ? "base 2" : "base e"; }

/// Converts logsumexp to base `lse_base`, with -inf for queries that see no key, if the file
/// records something else. Errors: data, if logsumexp leaves sinks out.
void convert_logsumexp(Partial& part, const ResultFile& file, const std::string& path,
                       const MergeArgs& args) {
  const bool is_recorded = file.made_by.find("job") != nullptr;
  const Options options = recorded_options(file.made_by);
  if (!options.lse_sinks && file.job("sinks") != nullptr)
    fail_data(printable(path) +
              ": logsumexp leaves out the sinks; to merge it, "
              "run with --lse-sinks included");
  if (!is_float(part.logsumexp.dtype())) return;
  if (is_recorded ? options.lse_empty == EmptyLogsumexp::infinity : args.is_empty_positive)
    replace_infinity(part.logsumexp, 1);
  if (!is_recorded || options.lse_base == args.lse_base) return;
  part.logsumexp = cast(part.logsumexp, DType::f64);
  for (double& x : part.logsumexp.mutable_data<double>())
    x *= std::log(options.lse_base) / std::log(args.lse_base);
  note(printable(path) + ": logsumexp is in " + base_text(options.lse_base) +
       ", as the file records; converted to " + base_text(args.lse_base));
}

/// The logsumexp, the context of each head and the weights, if any. `context` is used if there is
/// no head_context: they are equal if heads are an axis or if there is only one head.
Partial partial_of(const ResultFile& file, const std::string& path, const MergeArgs& args) {
  TensorMap tensors = renamed(file.tensors, args.as, path);
  const std::string head_context(name_of(Output::head_context));
  if (const Tensor* context = find(tensors, Output::context);
      context != nullptr && !tensors.contains(head_context))
    tensors.set(head_context, Tensor(*context));
  const std::string names = list_names(tensors.names());
  ProblemList problems;
  for (const Output output : {Output::logsumexp, Output::head_context})
    if (!contains(tensors, output))
      problems.add({.where = {path},
                    .subject = std::string(name_of(output)),
                    .message = "missing; each part must contain it (--outputs "
                               "logsumexp,head_context)",
                    .hint = names.empty() ? ""
                                          : "--as TENSOR=" + std::string(name_of(output)) +
                                                " uses one of " + names});
  if (!problems.empty()) problems.raise(ErrorKind::data);
  Partial part{at(tensors, Output::logsumexp), at(tensors, Output::head_context), std::nullopt};
  if (const Tensor* weights = find(tensors, Output::weights)) part.weights = *weights;
  convert_logsumexp(part, file, path, args);
  return part;
}

/// Warns if logsumexp was rounded to 16 bits, as earlier versions of attn did and other programs
/// may do.
void warn_coarse_logsumexp(const std::vector<Partial>& parts,
                           const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const DType dtype = parts[i].logsumexp.dtype();
    if (dtype != DType::f16 && dtype != DType::bf16) continue;
    return note("warning: " + names[i] + ": logsumexp is " + std::string(name_of(dtype)) +
                ", too coarse to weight the parts exactly; 'attn run' writes it in float32");
  }
}

int run_merge(const MergeArgs& args) {
  check_as(args.as);
  TensorFiles files(reading_limits(args.limits, FileAccess::read));
  std::vector<Partial> parts;
  std::vector<std::string> names, with_sinks;
  for (const std::string& path : args.parts) {
    const ResultFile file = read_result(path, files);
    if (file.job("sinks") != nullptr) with_sinks.push_back(printable(path));
    parts.push_back(partial_of(file, path, args));
    names.push_back(printable(path));
  }
  if (with_sinks.size() > 1)
    fail_data(join(with_sinks, " and ") +
              ": only one part may have sinks, which would be counted once per part");
  Partial merged = merge(parts, names, args.lse_base);
  if (args.is_empty_positive) replace_infinity(merged.logsumexp, -1);
  warn_coarse_logsumexp(parts, names);
  TensorMap results;
  if (merged.weights) results.set(std::string(name_of(Output::weights)), *merged.weights);
  results.set(std::string(name_of(Output::logsumexp)), merged.logsumexp);
  results.set(std::string(name_of(Output::head_context)), merged.head_context);
  emit_tensors(results, args.emit);
  return 0;
}

}  // namespace

Command merge_command() {
  const auto args = std::make_shared<MergeArgs>();
  Command command;
  command.description =
      "Combines results over parts of the keys. Up to rounding, the output is that of one run over "
      "all keys. Each part contains logsumexp and head_context, and optionally weights. All parts "
      "have the same queries; their keys are concatenated. Only one part may have an attention "
      "sink.";
  command.example =
      "  attn run part1.npz --outputs logsumexp,head_context -o 1.npz\n"
      "  attn run part2.npz --outputs logsumexp,head_context -o 2.npz\n"
      "  attn merge 1.npz 2.npz -o all.npz";
  command.add(
      required(positional("PART", args->parts, "results over parts of the keys (.npz or .json)")));
  command.add(as_option(args->as,
                        "names of the tensors in all parts: --as out=head_context,lse=logsumexp"));
  command.add(word("--lse-base", args->lse_base, {{"e", std::numbers::e}, {"2", 2}},
                   "base of the logarithm in logsumexp: e or 2, for parts that do not record it; "
                   "and of the result; default: e"));
  command.add(
      word("--lse-empty", args->is_empty_positive, {{"-inf", false}, {"inf", true}},
           "logsumexp of a query that sees no key: -inf or inf, in parts that do not record "
           "it and in the result; default: -inf"));
  add_emit_options(command, args->emit);
  add_limit_options(command, args->limits);
  command.action = [args] { return run_merge(*args); };
  return command;
}

}  // namespace attn
