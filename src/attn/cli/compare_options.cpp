#include "attn/cli/compare_options.h"

#include "attn/base/error.h"
#include "attn/cli/view_options.h"

namespace attn {
namespace {

std::vector<Option> tolerance_options(CompareArgs& args) {
  return in_group("Tolerance",
                  {number("--rtol", args.rtol, NumberRange::non_negative, "X",
                          "relative tolerance; default: 1e-7, or 0 with --ulp"),
                   number("--atol", args.atol, NumberRange::non_negative, "X",
                          "absolute tolerance; default: 0"),
                   integer("--ulp", args.ulps, {.min = 0}, "N",
                           "also accept elements at most N representable values apart"),
                   flag("--equal-nan", args.equal_nan, "treat NaN as equal to NaN")});
}

std::vector<Option> reference_options(ReferenceArgs& args) {
  return in_group(
      "Reference",
      {flag("--reference", args.asked,
            "compute B in f64 from a job file or the flags of 'attn run'; A passes if its errors "
            "are within the error bound for its precision"),
       word("--precision", args.precision, {"f64", "f32", "tf32", "f16", "bf16"},
            "precision that A was computed in: f64, f32, tf32, f16 or bf16; default: its dtype"),
       word("--sums", args.sums, {"f64", "f32", "f16", "bf16"},
            "precision of A's sums and softmax: f64, f32, f16 or bf16; default: f32, or f64 if A's "
            "precision is f64"),
       text("--as", args.output, "NAME",
            "output that an unnamed tensor of A represents; default: context, or output if W_O is "
            "given")});
}

std::vector<Option> picture_options(CompareArgs& args) {
  return in_group(
      "Picture",
      {view_option(args.view,
                   "draw A - B as a heat map on the terminal, or as a picture or page with "
                   "--view=FILE.svg, .png or .html"),
       text("--of", args.of, "NAME", "tensor to draw; default: the first that differs"),
       integer("--head", args.choice.head, {}, "I",
               "draw only this head; default: all, side by side"),
       integer("--batch", args.choice.batch, {}, "I", "draw only this batch"),
       integer("--layer", args.choice.layer, {}, "I", "draw only this layer"),
       flag("--force", args.force, "overwrite FILE if it exists")});
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
      {{"--color", "--width"}, "--view on the terminal", [&args] { return args.view == "-"; }},
      {{"--force"}, "--view=FILE", [&args] { return !args.view.empty() && args.view != "-"; }}};
  for (const auto& [flag, reason] : kFixed)
    command.conflicts.push_back({flag, "--reference", reason});
}

}  // namespace

void add_compare_options(Command& command, CompareArgs& args) {
  command.add(required(positional("A", args.a, "FILE or FILE#NAME; - for standard input")));
  command.add(positional("B", args.b, "reference FILE or FILE#NAME; with --reference, a job file"));
  command.add(tolerance_options(args));
  command.add(flag("--json", args.json, "print one JSON object on one line"));
  command.add(reference_options(args.reference));
  // Not listed: 'attn run --help' has them.
  const std::vector<Option> job = in_group("", job_options(args.reference.flags));
  command.add(job);
  command.add(picture_options(args));
  command.add(in_group("Picture", terminal_options(args.style)));
  add_limit_options(command, args.limits);
  add_rules(command, args, job);
}

void check(const CompareArgs& args) {
  if (args.b.empty() && !args.reference.asked)
    throw Error(ErrorKind::usage, "expected a reference file B, or --reference and a job");
  if (args.view == "-" && args.json)
    throw Error(ErrorKind::usage, "--view with --json requires a file: --view=FILE");
  if (!args.view.empty()) render_format(args.view);
}

}  // namespace attn
