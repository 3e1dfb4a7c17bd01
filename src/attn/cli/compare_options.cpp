#include "attn/cli/compare_options.h"

#include "attn/base/error.h"
#include "attn/cli/draw.h"

namespace attn {
namespace {

std::vector<Option> tolerance_options(CompareArgs& args) {
  return in_group("What is close", {number("--rtol", args.rtol, NumberRange::non_negative, "X",
                                           "relative tolerance; default: 1e-7, with --ulp 0"),
                                    number("--atol", args.atol, NumberRange::non_negative, "X",
                                           "absolute tolerance; default: 0"),
                                    integer("--ulp", args.ulps, {.min = 0}, "N",
                                            "as close: at most N representable values apart"),
                                    flag("--equal-nan", args.equal_nan,
                                         "NaN is close to NaN; without, to nothing")});
}

std::vector<Option> reference_options(ReferenceArgs& args) {
  return in_group(
      "Against the job itself",
      {flag("--reference", args.asked,
            "B is a job, or the flags of 'attn run' are: it is computed in f64, and close is "
            "what the result's precision can be expected to give"),
       word("--precision", args.precision, {"f64", "f32", "tf32", "f16", "bf16"},
            "what the result was computed in: f64, f32, tf32, f16 or bf16; default: its dtype"),
       word("--sums", args.sums, {"f64", "f32", "f16", "bf16"},
            "what sums and softmax were in; default: f32, of f64 f64"),
       text("--as", args.output, "NAME",
            "which output a tensor without a name is; default: context, with W_O output")});
}

std::vector<Option> picture_options(CompareArgs& args) {
  return in_group(
      "Picture",
      {optional_value("--view", args.view, "-", "[=FILE]",
                      "A - B as a heat map on the terminal, or as a picture or page: "
                      "--view=FILE.svg, .png, .html",
                      [](const std::string& word) { return find_draw_format(word).has_value(); }),
       text("--of", args.of, "NAME", "of which tensor; default: the first that differs"),
       integer("--head", args.choice.head, {}, "I", "this head alone; default: all, side by side"),
       integer("--batch", args.choice.batch, {}, "I", "this batch alone"),
       integer("--layer", args.choice.layer, {}, "I", "this layer alone"),
       flag("--force", args.force, "replace FILE where it exists")});
}

/// What is fixed for a reference, so that flags cannot set it. A job file may: it is one of
/// 'attn run'.
constexpr std::pair<const char*, const char*> kFixed[] = {
    {"--outputs",
     "the tensors of A are compared; A#NAME selects one, --as NAME says which output it is"},
    {"--compute", "the reference is computed in f64"},
    {"--path", "the reference is computed by the reference implementation"},
    {"--tokens", "labels come from A"}};

void add_rules(Command& command, const CompareArgs& args, const std::vector<Option>& job) {
  std::vector<std::string> with_reference = {"--precision", "--sums", "--as"};
  for (const Option& option : job) with_reference.push_back(option.name());
  command.requirements = {
      {with_reference, "--reference"},
      {{"--precision", "--sums"},
       "the error bound, which --rtol, --atol and --ulp replace",
       [&args] { return !args.tolerant(); }},
      {{"--of", "--head", "--batch", "--layer"}, "--view"},
      {{"--force"}, "--view=FILE", [&args] { return !args.view.empty() && args.view != "-"; }}};
  for (const auto& [flag, reason] : kFixed)
    command.conflicts.push_back({flag, "--reference", reason});
}

}  // namespace

void add_compare_options(Command& command, CompareArgs& args) {
  command.add(required(positional("A", args.a, "FILE or FILE#NAME; - is standard input")));
  command.add(positional("B", args.b, "the same: what A is held to; with --reference, a job file"));
  command.add(tolerance_options(args));
  command.add(flag("--json", args.json, "one JSON object, on one line"));
  command.add(reference_options(args.reference));
  // Not listed: 'attn run --help' has them.
  const std::vector<Option> job = in_group("", job_options(args.reference.flags));
  command.add(job);
  command.add(picture_options(args));
  add_limit_options(command, args.limits);
  add_rules(command, args, job);
}

void check(const CompareArgs& args) {
  if (args.b.empty() && !args.reference.asked)
    throw Error(ErrorKind::usage, "expected B, which A is held to, or --reference and a job");
  if (args.view == "-" && args.json)
    throw Error(ErrorKind::usage, "--view: beside --json the picture needs a file, --view=FILE");
  if (!args.view.empty()) draw_format(args.view);
}

}  // namespace attn
