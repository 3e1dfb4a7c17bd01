#include "attn/cli/compare.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/cli/help.h"
#include "attn/cli/rendering.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/stop_on_interrupt.h"
#include "attn/cli/tensor_names.h"
#include "attn/cli/terminal.h"
#include "attn/compare/compare_reference.h"
#include "attn/compare/gate_presets.h"
#include "attn/io/format.h"
#include "attn/io/mapped_file.h"
#include "attn/io/staged_file.h"
#include "attn/job/labels.h"
#include "attn/run/result_file.h"

namespace attn {
namespace {

std::vector<Option> tolerance_options(CompareArgs& args) {
  return in_group(
      "Tolerance",
      {common(number("--rtol", args.rtol, NumberRange::non_negative, "X",
                     "relative tolerance; default: by dtype as in torch.testing, or 0 with "
                     "--atol or --ulp")),
       common(number("--atol", args.atol, NumberRange::non_negative, "X",
                     "absolute tolerance; default: by dtype, or 0 with --rtol or --ulp")),
       common(integer("--ulp", args.ulps, {.min = 0}, "N",
                      "also accept elements at most N representable values apart")),
       flag("--equal-nan", args.equal_nan, "treat NaN as equal to NaN")});
}

std::string help_entries(const std::vector<Explained>& all) {
  constexpr std::size_t kColumnOfMeanings = 16;
  std::string text;
  for (const auto& [name, meaning] : all) text += help_entry(name, meaning, kColumnOfMeanings);
  return text;
}

std::vector<Option> gate_options(CompareArgs& args) {
  std::string unused;
  Option baseline = optional_value(
      "--baseline", unused, "", "[=K[,C]]",
      "A passes if max_abs <= K * baseline_max_abs + C, where the baseline is the job computed in "
      "the precision of A; default: 2,1e-5",
      [](const std::string&) { return false; });
  std::get<OptionalValue>(baseline.value).store = [&args](const std::string& factors) {
    args.gates.baseline = factors;
  };
  return in_group(
      "Gates",
      {common(list("--gate", args.gates.gates, "[REGEX:]EXPRESSION",
                   "A passes if this is true for its metrics (listed below), such as 'max_abs < "
                   "1e-3 and cosine > 0.999', instead of the tolerance or error bound; REGEX "
                   "selects tensors by name; repeatable")),
       suggesting(common(list(
                      "--preset", args.gates.presets, "NAME,...",
                      "the gates of a project (listed below): " + join(preset_names(), ", "), ',')),
                  preset_names()),
       common(baseline)});
}

std::vector<Option> reference_options(ReferenceArgs& args) {
  return in_group(
      "Reference",
      {common(flag(
           "--reference", args.enabled,
           "compute B in f64 from a job file or the flags of 'attn run'; A passes if its errors "
           "are within the error bound for its precision")),
       common(word(
           "--precision", args.precision, {"f64", "f32", "tf32", "f16", "bf16"},
           "precision that A was computed in: f64, f32, tf32, f16 or bf16; default: its dtype")),
       common(flag(
           "--diagnose", args.diagnose,
           "search all known mistakes that may explain a difference, and pairs for a few seconds; "
           "default: search for at most 2 s")),
       word("--sums", args.sums, {"f64", "f32", "f16", "bf16"},
            "precision of A's sums and softmax: f64, f32, f16 or bf16; default: f32, or f64 if A's "
            "precision is f64"),
       word("--weights-precision", args.weights, {"f16", "bf16", "e4m3", "e5m2"},
            "type to which A's computation rounds weights before it multiplies values: f16, bf16, "
            "e4m3 or e5m2")});
}

std::vector<Option> picture_options(CompareArgs& args) {
  return in_group(
      "Picture",
      {common(view_option(args.view, "draw A - B as a heat map on the terminal, or to FILE" +
                                         std::string(kRenderSuffixes))),
       text("--of", args.of, "NAME", "tensor to draw; default: the first that differs"),
       flag("--force", args.force, "overwrite FILE if it exists")});
}

/// Keys that --reference determines, so that flags cannot set them. A job file may contain them,
/// because it is also a job of 'attn run'.
constexpr std::pair<const char*, const char*> kFixedByReference[] = {
    {"--outputs",
     "the tensors of A are compared; A#NAME selects one, --as NAME says which output it is"},
    {"--path", "the reference is computed by the reference implementation"},
    {"--tokens", "labels come from A"},
    {"--key-tokens", "labels come from A"}};

void add_rules(Command& command, const CompareArgs& args, const std::vector<Option>& job) {
  std::vector<std::string> with_reference = {"--precision", "--sums", "--weights-precision",
                                             "--diagnose"};
  for (const Option& option : job) with_reference.push_back(option.name());
  command.requirements = {
      {with_reference, "--reference"},
      {{"--precision", "--sums", "--weights-precision", "--compute"},
       "the error bound, which --rtol, --atol and --ulp replace",
       [&args] { return !args.tolerant(); }},
      {{"--baseline"}, "--reference"},
      {{"--of", "--head", "--batch", "--layer"}, "--view"},
      {{"--color", "--width"}, "--view on the terminal", [&args] { return args.view == "-"; }},
      {{"--force"}, "--view=FILE", [&args] { return !args.view.empty() && args.view != "-"; }}};
  add_picture_requirements(command, args.view, "--view=");
  command.conflicts.push_back({"--verbose", "--json", "JSON has all figures"});
  for (const auto& [flag, reason] : kFixedByReference)
    command.conflicts.push_back({flag, "--reference", reason});
}

}  // namespace

void add_compare_options(Command& command, CompareArgs& args) {
  command.add(required(positional("A", args.a, "FILE or FILE#NAME; - for standard input")));
  command.add(positional("B", args.b, "reference FILE or FILE#NAME; with --reference, a job file"));
  command.add(tolerance_options(args));
  command.add(gate_options(args));
  command.notes =
      "Metrics of --gate (a: an element of A, b: of the reference), and\nbaseline_NAME, the same "
      "for "
      "the baseline:\n" +
      help_entries(explained_metrics()) + "\nGates of --preset:\n" +
      help_entries(explained_presets());
  command.add(common(as_option(
      args.reference.as,
      "NAME is TENSOR's name in B, or the output that it represents. 'TENSOR=' may be omitted if A "
      "has one tensor; its default with --reference is context, or output if W_O is given")));
  command.add(common(flag("--json", args.json, "print one JSON object on one line")));
  command.add(common(flag("-v,--verbose", args.details,
                          "print all figures, also of tensors that pass, and a histogram")));
  command.add(reference_options(args.reference));
  // Not listed: 'attn run --help' has them.
  std::vector<Option> job = in_group("", job_options(args.reference.flags));
  // --layer selects a matrix to draw, and --gate is a condition; a job with these keys is a file.
  const std::vector<std::string> file_keys = {"--model",  "--layer",     "--stack",
                                              "--hidden", "--hidden-is", "--gate"};
  std::erase_if(job, [&](const Option& option) {
    return std::find(file_keys.begin(), file_keys.end(), option.name()) != file_keys.end();
  });
  command.hints.push_back({{"--model", "--stack", "--hidden", "--hidden-is"},
                           "write model, layer and hidden in the job file"});
  command.add(job);
  command.add(picture_options(args));
  command.add(in_group("Picture", panel_options(args.choice)));
  command.add(in_group("Picture", terminal_options(args.style)));
  command.add(in_group("Picture", picture_style_options(args.style)));
  add_limit_options(command, args.limits);
  add_rules(command, args, job);
}

void check(const CompareArgs& args) {
  if (args.b.empty() && !args.reference.enabled)
    fail_usage("expected a reference file B, or --reference and a job");
  const FormatRow* const format = format_of_suffix(args.b);
  if (args.reference.enabled && format != nullptr && format->holds_one())
    fail_usage(
        "--reference: expected a job to compute, as a file or as flags such as --q, --k and "
        "--v, found one array (" +
        printable(args.b) + "); without --reference, A is compared with it");
  if (args.view == "-" && args.json) fail_usage("--view with --json requires a file: --view=FILE");
  if (!args.view.empty()) render_format(args.view);
}

namespace {

/// As typed: what is not given is 0. With --ulp and --rtol or --atol, an element is close if it
/// meets either criterion. With --reference, NaN equals NaN.
Tolerance tolerance_of(const CompareArgs& args) {
  Tolerance tolerance{args.rtol.value_or(0), args.atol.value_or(0), {}, false};
  if (args.ulps) tolerance.ulps = static_cast<double>(*args.ulps);
  tolerance.equal_nan = args.equal_nan || args.reference.enabled;
  return tolerance;
}

/// An unnamed tensor can only be compared with a file of one tensor.
void refuse_nameless(const TensorMap& one, const std::string& one_name, const TensorMap& other,
                     const std::string& other_name) {
  if (!one.contains("") || other.size() == 1) return;
  std::string names;
  for (const std::string& name : other.names()) names += (names.empty() ? "" : ", ") + name;
  fail_usage(printable(one_name) + " has one unnamed tensor, but " + printable(other_name) +
             " has " + std::to_string(other.size()) + " tensors (" + printable(names) +
             "); select one with " + printable(other_name) + "#NAME");
}

/// Errors: usage, if there is no such tensor.
TensorMap only_named(const TensorMap& tensors, const std::string& name, const std::string& file) {
  const Tensor* tensor = tensors.find(name);
  if (tensor == nullptr)
    fail_usage("--as: " + printable(file) + " has no tensor '" + printable(name) + "'" +
               did_you_mean(name, tensors.names(), NameKind::tensor));
  TensorMap one;
  one.set(name, *tensor);
  return one;
}

/// Errors: usage, if several tensors have no name in common.
void refuse_strangers(const CompareReport& report) {
  if (!report.pairs.empty() || report.only_in_a.empty() || report.only_in_b.empty()) return;
  fail_usage("A and B have no tensor name in common: A has " + list_names(report.only_in_a) +
             "; B has " + list_names(report.only_in_b) + "; pair them with --as " +
             printable(report.only_in_a[0]) + "=" + printable(report.only_in_b[0]) + ",...");
}

/// What A and B record about the axes of their tensors; read when a tensor has three or more.
class Records {
 public:
  Records(const CompareArgs& args, TensorFiles& files) : args_(args), files_(files) {}

  /// Of A and of B.
  const std::array<Json, 2>& made_by() {
    if (!made_by_)
      made_by_ = {read_made_by(parse_tensor_ref(args_.a).path, files_),
                  read_made_by(parse_tensor_ref(args_.b).path, files_)};
    return *made_by_;
  }

  /// Those that B records or, if it records none, A.
  Labels labels(const std::string& name, const Shape& shape) {
    if (shape.size() < 3) return {};
    const Json &a = made_by_of(made_by()[0], name), &b = made_by_of(made_by()[1], name);
    const bool is_of_b = b.find(kAxesMember) != nullptr || a.find(kAxesMember) == nullptr;
    return labels_in(is_of_b ? b : a, name.substr(name.rfind('/') + 1), shape);
  }

 private:
  const CompareArgs& args_;
  TensorFiles& files_;
  std::optional<std::array<Json, 2>> made_by_;
};

/// With `typed`, the tolerance is used for all tensors, otherwise that of their dtypes.
CompareReport compare_all(const TensorMap& a, const TensorMap& b, const Tolerance& tolerance,
                          bool typed, const std::vector<Gate>& gates, Records& records) {
  CompareReport report{{}, {}, {}, tolerance, false, {}};
  std::vector<GatedTensor> tensors;
  const auto add = [&](const std::string& name, const Tensor& one, const Tensor& other) {
    tensors.push_back({name, one.dtype()});
    Tolerance used = typed ? tolerance : default_tolerance(one.dtype(), other.dtype());
    used.equal_nan = tolerance.equal_nan;
    report.pairs.push_back(
        compared_pair({name, one, other, {}, "", used},
                      axes_by_labels(records.labels(name, other.shape()), other.shape()), 0,
                      {gates_for(tensors.back(), gates), one.dtype(), {}}));
  };
  if (a.size() == 1 && b.size() == 1) {
    const std::string& name = a.begin()->first;
    add(name.empty() ? b.begin()->first : name, a.begin()->second, b.begin()->second);
    require_selected(gates, tensors);
    return report;
  }
  for (const auto& [name, tensor] : a) {
    if (const Tensor* other = b.find(name))
      add(name, tensor, *other);
    else
      report.only_in_a.push_back(name);
  }
  for (const auto& [name, tensor] : b)
    if (!a.contains(name)) report.only_in_b.push_back(name);
  refuse_strangers(report);
  require_selected(gates, tensors);
  return report;
}

/// The pair with the given name, or the first that differs, or the first. nullptr if no pair has
/// equal shapes.
const TensorPair* drawn_pair(const CompareReport& report, const std::string& name) {
  const TensorPair* found = nullptr;
  bool known = name.empty();
  for (const TensorPair& pair : report.pairs) {
    if (!name.empty() && pair.compared.name != name) continue;
    known = true;
    if (!pair.found.same_shape) continue;
    if (found == nullptr || (found->passed() && !pair.passed())) found = &pair;
  }
  if (!known) fail_usage("--of " + printable(name) + ": A and B have no such tensor in common");
  return found;
}

/// Elements are drawn as hidden keys if masked_scores of A says so, or if they are -inf in both
/// tensors. Without masked_scores, weights of exactly 0 in both are marked as such.
HeatSource source_of(const TensorPair& pair, const ResultFile& labels, const CompareArgs& args) {
  const Tensor &a = pair.compared.a, &b = pair.compared.b;
  ResultFile file{{}, labels.tokens, labels.made_by, labels.key_tokens};
  const std::string name = pair.compared.name.empty() ? "result" : pair.compared.name;
  file.tensors.set(name, difference(a, b));
  const std::string masked_name(name_of(Output::masked_scores));
  if (name != masked_name && labels.tensors.contains(masked_name))
    file.tensors.set(masked_name, labels.tensors.at(masked_name));
  HeatSource source = heat_source(file, name, args.a);
  const double hidden = -std::numeric_limits<double>::infinity();
  const Tensor x = cast(a, DType::f64), y = cast(b, DType::f64);
  source.masks_zeros = !source.masked && output_named(name) == Output::weights;
  const double unseen = source.masks_zeros ? 0 : hidden;
  Tensor masked = source.masked ? cast(*source.masked, DType::f64) : Tensor(DType::f64, a.shape());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (x.data<double>()[i] == unseen && y.data<double>()[i] == unseen)
      masked.mutable_data<double>()[i] = hidden;
  source.masked = masked;
  source.visible.reset();
  source.is_signed = true;
  source.is_weights = false;
  source.zero_is_hidden = false;
  source.name = name + ": A \u2212 B";
  source.description = "A: " + printable(args.a) +
                       "; B: " + (args.reference.enabled ? "the reference" : printable(args.b));
  return source;
}

/// What --view draws; empty, with a note, if no two tensors have equal shapes.
std::optional<Rendering> drawn_difference(const CompareReport& report, const CompareArgs& args,
                                          TensorFiles& files) {
  const TensorPair* pair = drawn_pair(report, args.of);
  if (pair == nullptr) {
    note("--view: nothing to draw, because no two tensors have equal shapes");
    return std::nullopt;
  }
  const RenderFormat format = render_format(args.view);
  const ResultFile labels = read_result(parse_tensor_ref(args.a).path, files);
  const std::vector<PageSet> sets = {page_set(source_of(*pair, labels, args), args.choice, args.a)};
  Rendering drawing = render(sets, format, args.style);
  if (format == RenderFormat::text) drawing.bytes.insert(0, 1, '\n');
  return drawing;
}

/// The job of --reference: a file, flags or both.
Document reference_document(const std::string& job, const JobFlags& flags, TensorFiles& files) {
  Document document = job_document(job, flags, files);
  if (document.entries.empty())
    fail_usage("--reference: expected a job to compute, as a file or as flags of 'attn run'");
  return document;
}

/// Without --reference and --max-memory, the size of inputs is not limited.
ReadLimits compare_limits(const CompareArgs& args) {
  if (!args.reference.enabled && args.limits.max_memory.empty())
    return reading_limits(args.limits, FileAccess::map);
  ReadLimits limits = limits_of(args.limits);
  limits.access = FileAccess::map;
  return limits;
}

/// Warns about the first pair of tensors whose files record different layers.
void warn_of_pairs(const CompareReport& report, const CompareArgs& args, Records& records) {
  std::vector<ResultFile> results;
  for (const TensorPair& pair : report.pairs) {
    if (!pair.found.same_shape || pair.compared.a.rank() < 3) continue;
    if (results.empty())
      for (const Json& made_by : records.made_by()) results.push_back({{}, {}, made_by});
    std::vector<LayersOfFile> of_files;
    for (ResultFile& result : results) {
      result.tensors.set(pair.compared.name, pair.compared.a);
      of_files.push_back(
          {of_files.empty() ? args.a : args.b, axis_names(result, pair.compared.name).layers});
    }
    if (warn_of_layers(of_files[0], of_files[1])) return;
  }
}

int run_compare(const CompareArgs& args) {
  check(args);
  const ReadLimits limits = compare_limits(args);
  TensorFiles files(limits);
  const std::vector<std::string>& as = args.reference.as;
  const TensorMap a = renamed(tensors_of(parse_tensor_ref(args.a), files), as, "A");
  const Tolerance tolerance = tolerance_of(args);
  const std::vector<Gate> gates = gates_of(args.gates, args.tolerant());
  CompareReport report;
  if (args.reference.enabled) {
    require_bf16_compute(args.reference.flags);
    const StopOnInterrupt interrupt;
    SearchLimits search{.stop = interrupt.stopped()};
    if (args.reference.diagnose) search.seconds.reset();
    report =
        compare_to_reference(a, reference_document(args.b, args.reference.flags, files),
                             {args.reference.precision, args.reference.sums, args.reference.weights,
                              as, tolerance, args.tolerant(), gates, search, !args.view.empty()},
                             files);
    for (const std::string& text : report.notes) note(text);
  } else {
    TensorMap b = tensors_of(parse_tensor_ref(args.b), files);
    if (as.size() == 1 && as[0].find('=') == std::string::npos && b.size() > 1)
      b = only_named(b, as[0], args.b);
    refuse_nameless(a, args.a, b, args.b);
    refuse_nameless(b, args.b, a, args.a);
    require_metrics(gates, false, args.tolerant());
    Records records(args, files);
    report = compare_all(a, b, tolerance, args.tolerant(), gates, records);
    warn_of_pairs(report, args, records);
  }
  if (report.pairs.empty() && report.only_in_a.empty() && report.only_in_b.empty())
    fail_data(printable(args.a) + ": expected a tensor to compare, found none");
  // Opened and drawn before printing, because both may fail.
  std::optional<OutputFile> picture;
  std::optional<Rendering> drawing;
  if (!args.view.empty()) {
    picture.emplace(args.view, OutputPolicy{.force = args.force});
    drawing = drawn_difference(report, args, files);
  }
  require_mapped_files_unchanged();  // the exit code depends on them, too
  if (args.json)
    print(report_json(report));
  else if (!is_quiet())
    print(report_text(report, args.details));
  if (drawing) {
    picture->write(drawing->bytes);
    picture->commit();
    if (!drawing->note.empty()) note(drawing->note);
  }
  return report.same() ? 0 : 1;
}

}  // namespace

Command compare_command() {
  const auto args = std::make_shared<CompareArgs>();
  Command command;
  command.description =
      "Compares the tensors of A with the tensors of B, the reference. An element is close if "
      "|a - b| <= atol + rtol |b|. Exit code 0: all elements are close; 1: some differ. With "
      "--reference, B is computed from a job, for tests of kernels.";
  command.quiet_help = "suppress the report, and notes and warnings on stderr; --json is printed";
  command.example =
      "  attn compare result.npz expected.npz --rtol 1e-5\n"
      "  attn compare mine.npy result.npz#weights --ulp 4 --view\n"
      "  attn compare result.npz --reference --q q.npy --k k.npy --v v.npy --heads 4";
  add_compare_options(command, *args);
  command.action = [args] { return run_compare(*args); };
  return command;
}

}  // namespace attn
