#include "attn/cli/merge.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/cli/emit.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/tensor_names.h"
#include "attn/cli/terminal.h"
#include "attn/core/merge.h"
#include "attn/core/output_table.h"
#include "attn/result/result_file.h"

namespace attn {
namespace {

struct MergeArgs {
  std::vector<std::string> parts;
  std::vector<std::string> as;
  double lse_base = std::numbers::e;
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
      throw Error(ErrorKind::usage, "--as: expected TENSOR=NAME, found '" + printable(entry) + "'");
    const std::string name = entry.substr(equals + 1);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorKind::usage, "--as: expected " + join(known, ", ") + ", found '" +
                                        printable(name) + "'" +
                                        did_you_mean(name, known, NameKind::output));
  }
}

/// The base of the logarithm in logsumexp that a result of attn records; nullopt for other files.
std::optional<double> recorded_base(const ResultFile& file) {
  if (file.made_by.find("job") == nullptr) return std::nullopt;
  double base = 0;
  const Json* given = file.job("lse_base");
  return given != nullptr && given->as_number(base) ? base : std::numbers::e;
}

std::string base_text(double base) { return base == 2 ? "base 2" : "base e"; }

/// Converts logsumexp to base `lse_base` if the file records another one.
void convert_base(Partial& part, const ResultFile& file, const std::string& path, double lse_base) {
  const double base = recorded_base(file).value_or(lse_base);
  if (base == lse_base || !is_float(part.logsumexp.dtype())) return;
  part.logsumexp = cast(part.logsumexp, DType::f64);
  for (double& x : part.logsumexp.mutable_data<double>()) x *= std::log(base) / std::log(lse_base);
  note(printable(path) + ": logsumexp is in " + base_text(base) +
       ", as the file records; converted to " + base_text(lse_base));
}

/// The logsumexp, the context of each head and the weights, if any. `context` is used if there is
/// no head_context: they are equal if heads are an axis or if there is only one head.
Partial read_part(const std::string& path, const MergeArgs& args, TensorFiles& files) {
  const ResultFile file = read_result(path, files);
  TensorMap tensors = renamed(file.tensors, args.as, path);
  const std::string head_context(name_of(Output::head_context));
  if (const Tensor* context = find(tensors, Output::context);
      context != nullptr && !tensors.contains(head_context))
    tensors.set(head_context, Tensor(*context));
  ProblemList problems;
  for (const Output output : {Output::logsumexp, Output::head_context})
    if (!contains(tensors, output))
      problems.add({.where = {path},
                    .subject = std::string(name_of(output)),
                    .message = "missing; each part must contain it (--outputs "
                               "logsumexp,head_context)",
                    .hint = "--as TENSOR=" + std::string(name_of(output)) + " uses one of " +
                            list_names(tensors.names())});
  if (!problems.empty()) problems.raise(ErrorKind::data);
  Partial part{at(tensors, Output::logsumexp), at(tensors, Output::head_context), std::nullopt};
  if (const Tensor* weights = find(tensors, Output::weights)) part.weights = *weights;
  convert_base(part, file, path, args.lse_base);
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
  std::vector<std::string> names;
  for (const std::string& path : args.parts) {
    parts.push_back(read_part(path, args, files));
    names.push_back(printable(path));
  }
  const Partial merged = merge(parts, names, args.lse_base);
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
  add_emit_options(command, args->emit);
  add_limit_options(command, args->limits);
  command.action = [args] { return run_merge(*args); };
  return command;
}

}  // namespace attn
