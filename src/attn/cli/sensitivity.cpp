// attn sensitivity: lists the mistakes of kernels that a test of a job would not notice.
#include "attn/diagnose/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/stop_on_interrupt.h"
#include "attn/cli/terminal.h"
#include "attn/compare/gate.h"
#include "attn/compare/gate_presets.h"
#include "attn/compare/job_variant.h"
#include "attn/io/mapped_file.h"
#include "attn/metrics/comparison.h"
#include "attn/model/model_job.h"

namespace attn {
namespace {

struct SensitivityArgs {
  std::string job, output, precision;
  GateWords gates;
  JobFlags flags;
  std::optional<double> rtol, atol;
  bool require_all = false, suggest = false, json = false;
  LimitArgs limits;
};

/// Errors: usage, for a name that is no output of the job.
Output tested_output(const SensitivityArgs& args, const Job& job) {
  if (args.output.empty()) return usual_output(job);
  const Request request = requests_named({args.output}, job)[0];
  const Output* output = std::get_if<Output>(&request);
  if (is_of_gradients(request))
    fail_usage("--of " + printable(args.output) +
               ": mistakes of gradients are not tested; attn compare --reference finds those "
               "in a result");
  if (output == nullptr || !needs_scores(*output) || !row_of(*output).axes.contains(Axis::L))
    fail_usage("--of " + printable(args.output) +
               ": expected an output with a row for each query, computed "
               "from the scores");
  return *output;
}

/// The precision as typed, or that of the inputs.
Precision tested_precision(const SensitivityArgs& args, const Inputs& in) {
  const std::string of_inputs(in.result == DType::f32    ? "f32"
                              : in.result == DType::f16  ? "f16"
                              : in.result == DType::bf16 ? "bf16"
                                                         : "f64");
  return *precision_named(args.precision.empty() ? of_inputs : args.precision);
}

/// "12.3", "5e+04", "inf"
std::string ratio_text(double ratio) {
  if (!std::isfinite(ratio)) return "inf";
  const double unit = ratio > 0 ? std::pow(10, std::floor(std::log10(ratio)) - 2) : 1;
  return six_digits(std::round(ratio / unit) * unit);
}

std::string ratio_text(const std::optional<double>& ratio) {
  return ratio ? ratio_text(*ratio) : "-";
}

/// `accepted`: "tolerance", "bound", or "" for gates.
std::string report(const Sensitivity& found, const std::string& accepted) {
  std::vector<std::vector<std::string>> rows = {
      {"mistake", "verdict", "change/" + accepted, "change/bound", "outside", "the kernel has"}};
  for (const Effect& effect : found.effects)
    rows.push_back({effect.id, std::string(name_of(effect.verdict)),
                    ratio_text(effect.of_tolerance), ratio_text(effect.of_bound),
                    rounded_text(100 * effect.outside, 1, Notation::positional) + " %",
                    printable(effect.kernel)});
  for (auto& row : rows) {
    if (accepted.empty()) row.erase(row.begin() + 4);
    if (accepted.empty() || accepted == "bound") row.erase(row.begin() + 2);
  }
  std::string text = aligned_rows(rows, 2, rows[0].size() - 1);
  const auto count = [&](Effect::Verdict verdict) {
    return std::to_string(std::count_if(found.effects.begin(), found.effects.end(),
                                        [&](const Effect& e) { return e.verdict == verdict; }));
  };
  text += count(Effect::Verdict::seen) + " of " + std::to_string(found.effects.size()) +
          " mistakes are seen, " + count(Effect::Verdict::barely) + " barely, " +
          count(Effect::Verdict::not_seen) + " not";
  if (found.queries < found.all_queries)
    text += ", on " + std::to_string(found.queries) + " sampled queries";
  text += "\n";
  if (!found.without_effect.empty())
    text +=
        "without effect on this job, whatever its numbers: " + join(found.without_effect, ", ") +
        "\n";
  if (!found.untested.empty()) text += "not tested: " + join(found.untested, ", ") + "\n";
  return text;
}

Json report_json(const Sensitivity& found, const std::vector<std::string>& advice) {
  JsonArray effects, untested, lines, without_effect;
  for (const Effect& effect : found.effects)
    effects.push_back(
        Json{JsonObject{{"id", Json{effect.id}},
                        {"text", Json{effect.kernel}},
                        {"verdict", Json{std::string(name_of(effect.verdict))}},
                        {"of_tolerance", effect.of_tolerance ? Json{*effect.of_tolerance} : Json{}},
                        {"of_bound", effect.of_bound ? Json{*effect.of_bound} : Json{}},
                        {"outside", Json{effect.outside}}}});
  for (const std::string& id : found.without_effect) without_effect.push_back(Json{id});
  for (const std::string& id : found.untested) untested.push_back(Json{id});
  for (const std::string& line : advice) lines.push_back(Json{line});
  return Json{JsonObject{{"mistakes", Json{std::move(effects)}},
                         {"without_effect", Json{std::move(without_effect)}},
                         {"untested", Json{std::move(untested)}},
                         {"queries", Json{static_cast<std::int64_t>(found.queries)}},
                         {"of_queries", Json{static_cast<std::int64_t>(found.all_queries)}},
                         {"suggestions", Json{std::move(lines)}}}};
}

/// The test that the user typed. `precision` is that of the kernel.
Test tested(const SensitivityArgs& args, const Job& job, Output output,
            const Precision& precision) {
  Test test{{}, precision};
  if (args.rtol || args.atol)
    test.tolerance = Tolerance{args.rtol.value_or(0), args.atol.value_or(0), {}, true};
  const std::vector<Gate> gates = gates_of(args.gates, test.tolerance.has_value());
  if (gates.empty()) return test;
  for (const Gate& gate : gates)
    if (gate.names_baseline())
      fail_usage(gate.place() + ": there is no result, and so no baseline");
  const DType stored = precision.stored;
  const std::vector<GatedTensor> tensors = {
      {std::string(name_of(output)), stored, job.options.softcap > 0}};
  require_selected(gates, tensors);
  Tolerance tolerance = test.tolerance.value_or(default_tolerance(stored, stored));
  tolerance.equal_nan = true;
  test.gate = [=](const Tensor& result, const Evaluated& right) {
    const Comparison found =
        compare(result, right.values, tolerance, right.bounds ? &*right.bounds : nullptr);
    const Measured measured(result, right.values, found, {0, 2}, stored);
    if (!found.finite_at_the_same_places()) return false;
    const auto selected = gates_for(tensors[0], gates);
    return std::all_of(selected.begin(), selected.end(),
                       [&](const Gate* gate) { return evaluate(*gate, measured, nullptr).passed; });
  };
  return test;
}

int run_sensitivity(const SensitivityArgs& args) {
  require_bf16_compute(args.flags);
  TensorFiles files(limits_of(args.limits));
  Document document = job_document(args.job, args.flags, files);
  if (document.entries.empty()) fail_usage("expected a job");
  check_values(document);
  document.erase("outputs");
  const auto [job, prepared] = read_checked_job(std::move(document), files);
  const Output output = tested_output(args, job);
  const Test test = tested(args, job, output, tested_precision(args, prepared.inputs));
  const StopOnInterrupt interrupt;
  const Variant given = variant_of(job);
  const Sensitivity found = sensitivity(given, output, test, interrupt.stopped());
  const std::vector<std::string> advice =
      args.suggest ? suggestions(given, found) : std::vector<std::string>();
  require_mapped_files_unchanged();
  if (args.json) {
    print_data(to_json(report_json(found, advice)) + "\n");
  } else if (!is_quiet()) {
    print(report(found, test.gate ? "" : test.tolerance ? "tolerance" : "bound"));
    for (const std::string& line : advice) print(line + "\n");
  }
  const bool all = found.untested.empty() &&
                   std::all_of(found.effects.begin(), found.effects.end(),
                               [](const Effect& e) { return e.verdict == Effect::Verdict::seen; });
  return args.require_all && !all ? 1 : 0;
}

}  // namespace

Command sensitivity_command() {
  const auto args = std::make_shared<SensitivityArgs>();
  Command command;
  command.description =
      "Lists known mistakes of kernels that apply to a job, and whether a test of its result would "
      "notice each: seen, if the largest change is at least 10 times the tolerance and 1 % of the "
      "elements that it changes exceed it, or if half of them do; barely, if some do; or not seen. "
      "--rtol and --atol set the tolerance, otherwise it is the error bound of the precision, as "
      "in 'attn compare --reference'. With gates, a mistake is seen if a tenth of its change would "
      "also fail.";
  command.example =
      "  attn sensitivity job.json --rtol 1e-2 --atol 1e-2\n"
      "  attn sensitivity --q q.npy --k k.npy --v v.npy --causal --suggest";
  command.add(positional("JOB", args->job, "job file (.json, .npz or .safetensors)"));
  command.add(in_group(
      "Tolerance",
      {common(list("--gate", args->gates.gates, "[REGEX:]EXPRESSION",
                   "a condition instead of a tolerance, as for 'attn compare'; repeatable")),
       suggesting(common(list("--preset", args->gates.presets, "NAME,...",
                              "the gates of a project: " + join(preset_names(), ", "), ',')),
                  preset_names()),
       common(number("--rtol", args->rtol, NumberRange::non_negative, "X", "relative tolerance")),
       common(number("--atol", args->atol, NumberRange::non_negative, "X", "absolute tolerance")),
       common(word("--precision", args->precision, {"f64", "f32", "tf32", "f16", "bf16"},
                   "precision of the kernel, for the error bound: f64, f32, tf32, f16 or bf16; "
                   "default: that of the inputs"))}));
  command.add(common(text("--of", args->output, "NAME",
                          "output that is tested; default: context, or output with a W_O")));
  command.add(common(flag("--require-all", args->require_all,
                          "exit code 1 unless all mistakes are seen and tested")));
  command.add(common(flag("--suggest", args->suggest, "say how to change the inputs")));
  command.add(common(flag("--json", args->json, "print one JSON object on one line")));
  std::vector<Option> job = in_group("", job_options(args->flags));
  // Those without effect, and the gate tensor, whose flag is that of a condition here.
  const std::set<std::string> left_out = {"--gate", "--outputs", "--path", "--tokens",
                                          "--key-tokens"};
  std::erase_if(job, [&](const Option& option) { return left_out.contains(option.name()); });
  command.add(job);
  command.hints = {{{"--outputs"}, "use --of"}};
  add_limit_options(command, args->limits);
  command.action = [args] { return run_sensitivity(*args); };
  return command;
}

}  // namespace attn
