#include "attn/cli/merge.h"

#include <memory>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/emit.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/core/merge.h"
#include "attn/core/output_table.h"

namespace attn {
namespace {

struct MergeArgs {
  std::vector<std::string> parts;
  EmitArgs emit;
  LimitArgs limits;
};

Partial read_part(const std::string& path, TensorFiles& files) {
  const TensorMap tensors = files.all(path);
  ProblemList problems;
  for (const Output output : {Output::logsumexp, Output::head_context})
    if (!contains(tensors, output))
      problems.add({.where = {path},
                    .subject = std::string(name_of(output)),
                    .message = "missing; each part must contain it (--outputs "
                               "logsumexp,head_context)"});
  if (!problems.empty()) problems.raise(ErrorKind::data);
  Partial part{at(tensors, Output::logsumexp), at(tensors, Output::head_context), std::nullopt};
  if (const Tensor* weights = find(tensors, Output::weights)) part.weights = *weights;
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

int run(const MergeArgs& args) {
  TensorFiles files(reading_limits(args.limits, FileAccess::read));
  std::vector<Partial> parts;
  std::vector<std::string> names;
  for (const std::string& path : args.parts) {
    parts.push_back(read_part(path, files));
    names.push_back(printable(path));
  }
  const Partial merged = merge(parts, names);
  warn_coarse_logsumexp(parts, names);
  TensorMap results;
  if (merged.weights) results.set(std::string(name_of(Output::weights)), *merged.weights);
  results.set(std::string(name_of(Output::logsumexp)), merged.logsumexp);
  results.set(std::string(name_of(Output::head_context)), merged.head_context);
  emit_tensors(results, args.emit, files);
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
      "  attn run --q q.npy --k k1.npy --outputs logsumexp,head_context -o 1.npz\n"
      "  attn run --q q.npy --k k2.npy --outputs logsumexp,head_context -o 2.npz\n"
      "  attn merge 1.npz 2.npz -o all.npz";
  command.add(
      required(positional("PART", args->parts, "results over parts of the keys (.npz or .json)")));
  add_emit_options(command, args->emit);
  add_limit_options(command, args->limits);
  command.action = [args] { return run(*args); };
  return command;
}

}  // namespace attn
