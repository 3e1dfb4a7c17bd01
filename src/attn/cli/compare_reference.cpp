#include "attn/cli/compare_reference.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/cli/terminal.h"
#include "attn/core/attention.h"
#include "attn/core/expected_error.h"
#include "attn/job/job.h"
#include "attn/report/comparison.h"
#include "attn/result/execution.h"
#include "attn/result/memory_estimate.h"

namespace attn {
namespace {

Document document_of(const std::string& job, const JobFlags& flags, TensorFiles& files) {
  Document document;
  if (!job.empty()) document = read_document(job, files);
  apply_job_flags(flags, document);
  if (document.entries.empty())
    throw Error(ErrorKind::usage,
                "--reference: expected a job to compute, as a file or as flags of 'attn run'");
  return document;
}

/// A tensor, and the output that it claims to be.
struct ClaimedOutput {
  std::string output;
  Tensor tensor;
};

/// Tensors by the name of an input are what the job was given: passed over.
std::vector<ClaimedOutput> claims_of(const TensorMap& given, const std::string& output,
                                     const Job& job, std::vector<std::string>& strangers) {
  const std::string default_output(
      name_of(contains(job.tensors, Input::W_O) ? Output::output : Output::context));
  std::vector<ClaimedOutput> claims;
  for (const auto& [name, tensor] : given) {
    if (given.size() == 1 && (!output.empty() || !output_named(name)))
      claims.push_back({output.empty() ? default_output : output, tensor});
    else if (output_named(name))
      claims.push_back({name, tensor});
    else if (!input_named(name))
      strangers.push_back(name);
  }
  if (given.size() != 1 && !output.empty())
    throw Error(ErrorKind::usage, "--as: requires a single tensor, A has " +
                                      std::to_string(given.size()) + "; select one with A#NAME");
  return claims;
}

/// Has the job compute them, and messages about them name where they were named.
void claim_outputs(const std::vector<ClaimedOutput>& claims, const std::string& where, Job& job,
                   Document& document) {
  job.outputs.clear();
  JsonArray names;
  for (const ClaimedOutput& claim : claims) {
    job.outputs.push_back(claim.output);
    names.push_back({claim.output});
  }
  document.set({"outputs", {names}, where, "", true});
}

Precision named(const std::string& word) { return *precision_named(word); }

/// As typed, or the dtype's own; what is no float is held to float64.
Precision precision_of(const Tensor& tensor, const ReferenceArgs& args) {
  const std::string own = tensor.dtype() == DType::f32    ? "f32"
                          : tensor.dtype() == DType::f16  ? "f16"
                          : tensor.dtype() == DType::bf16 ? "bf16"
                                                          : "f64";
  const Precision precision = named(args.precision.empty() ? own : args.precision);
  return args.sums.empty() ? precision : with_sums_in(precision, named(args.sums));
}

/// Where the tolerance is all that is asked for, no bounds are needed.
void require_bound(const std::string& output, const Options& options) {
  const std::string why = no_error_known(output, options);
  if (!why.empty())
    throw Error(ErrorKind::usage,
                "--reference: no error bound is known " + why + "; set --rtol, --atol or --ulp");
}

/// What bounds take beside what the job itself does, in matrices of the scores' shape: five while
/// one is worked out and compared with, and one that stays for each.
std::size_t bytes_of_errors(const Inputs& in, std::size_t bounds) {
  return product({5 + bounds, sizeof(double), in.B, in.H, in.rows.size(), in.S});
}

/// A tensor without an output's name was taken for one of another shape: the outputs of its shape.
void hint_outputs(const Tensor& tensor, const PreparedJob& prepared, const Job& job) {
  std::string names;
  const auto available = available_outputs(job.tensors, job.options);
  for (const PlannedOutput& output :
       plan(prepared.inputs, job.tensors, job.options, available).outputs)
    if (output_named(output.name) && output.shape == tensor.shape())
      names += (names.empty() ? "" : ", ") + output.name;
  if (!names.empty())
    note("use --as NAME to name the output that A represents; outputs of its shape: " + names);
}

}  // namespace

CompareReport compare_to_reference(const TensorMap& given, const std::string& job_file,
                                   const ReferenceArgs& args, TensorFiles& files,
                                   const Tolerance& tolerance, bool tolerance_typed,
                                   std::size_t most_memory) {
  Document document = document_of(job_file, args.flags, files);
  Job job = make_job(document, files);
  job.options.compute = Compute::f64;
  job.options.path = Path::reference;
  CompareReport report{{}, {}, {}, tolerance, true};
  const std::vector<ClaimedOutput> claims = claims_of(given, args.output, job, report.only_in_a);
  claim_outputs(claims, args.output.empty() ? "A" : "--as", job, document);
  PreparedJob prepared = prepare_job(job, document);
  if (!tolerance_typed)
    for (const ClaimedOutput& claim : claims) require_bound(claim.output, job.options);
  MemoryEstimate memory(prepared.plan);
  if (!tolerance_typed) memory.add("error bounds", bytes_of_errors(prepared.inputs, claims.size()));
  memory.require(document.name, most_memory);
  const Execution reference = execute({job, prepared, document, nullptr, job.outputs});
  for (const std::string& warning : reference.warnings) note("warning: " + warning);
  for (const ClaimedOutput& claim : claims) {
    Compared compared{
        claim.output, claim.tensor, reference.result.outputs.at(claim.output), {}, ""};
    if (!tolerance_typed && compared.a.shape() == compared.b.shape()) {
      const Precision precision = precision_of(claim.tensor, args);
      compared.bounds = expected_error(claim.output, prepared.inputs, job.options, precision);
      compared.bound_of = precision.name;
    }
    if (args.output.empty() && given.size() == 1 && !given.contains(claim.output) &&
        compared.a.shape() != compared.b.shape())
      hint_outputs(claim.tensor, prepared, job);
    const Tensor* bounds = compared.bounds ? &*compared.bounds : nullptr;
    const Comparison found = compare(compared.a, compared.b, tolerance, bounds);
    report.couples.push_back({std::move(compared), found});
  }
  return report;
}

}  // namespace attn
