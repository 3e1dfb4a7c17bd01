#include "attn/cli/compare_options.h"

#include <CLI/CLI.hpp>

#include "attn/base/error.h"
#include "attn/cli/draw.h"
#include "attn/cli/idle.h"
#include "attn/cli/values.h"

namespace attn {
namespace {

void add_tolerance(CLI::App& app, CompareArgs& args) {
  const auto add = [&](const std::string& flag, auto& place, const std::string& what,
                       const std::string& type) {
    return app.add_option(flag, place, what)->type_name(type)->group("What is close");
  };
  take_number(add("--rtol", args.rtol, "relative tolerance; default: 1e-7, with --ulp 0", "X"),
              Sign::not_negative);
  take_number(add("--atol", args.atol, "absolute tolerance; default: 0", "X"), Sign::not_negative);
  take_whole(add("--ulp", args.ulps, "as close: at most N representable values apart", "N"), 0);
  app.add_flag("--equal-nan", args.equal_nan, "NaN is close to NaN; without, to nothing")
      ->group("What is close");
}

void add_reference(CLI::App& app, ReferenceArgs& args) {
  const std::string group = "Against the job itself";
  app.add_flag("--reference", args.asked,
               "B is a job, or the flags of 'attn run' are: it is computed in f64, and close is "
               "what the result's precision can be expected to give")
      ->group(group);
  app.add_option("--precision", args.precision,
                 "what the result was computed in: f64, f32, tf32, f16 or bf16; default: its dtype")
      ->check(one_of({"f64", "f32", "tf32", "f16", "bf16"}))
      ->type_name("WORD")
      ->group(group);
  app.add_option("--sums", args.sums, "what sums and softmax were in; default: f32, of f64 f64")
      ->check(one_of({"f64", "f32", "f16", "bf16"}))
      ->type_name("WORD")
      ->group(group);
  app.add_option("--as", args.output,
                 "which output a tensor without a name is; default: context, with W_O output")
      ->type_name("NAME")
      ->group(group);
  add_job_flags(app, args.flags);
  for (CLI::Option* option : app.get_options())
    if (option->get_group() == "Tensors" || option->get_group() == "Attention" ||
        option->get_group() == "Positions" || option->get_group() == "Job")
      option->group("");  // not shown: 'attn run --help' has them
}

void add_view(CLI::App& app, CompareArgs& args) {
  const std::string group = "Picture";
  app.add_flag("--view{-}", args.view,
               "A - B as a heat map on the terminal, or as a picture or page: --view=FILE.svg, "
               ".png, .html")
      ->type_name("[=FILE]")
      ->group(group);
  app.add_option("--of", args.of, "of which tensor; default: the first that differs")
      ->type_name("NAME")
      ->group(group);
  const auto add_axis = [&](const std::string& flag, auto& place, const std::string& what) {
    take_whole(app.add_option(flag, place, what))->type_name("I")->group(group);
  };
  add_axis("--head", args.choice.head, "this head alone; default: all, side by side");
  add_axis("--batch", args.choice.batch, "this batch alone");
  add_axis("--layer", args.choice.layer, "this layer alone");
  app.add_flag("--force", args.force, "replace FILE where it exists")->group(group);
}

}  // namespace

void add_compare_options(CLI::App& app, CompareArgs& args) {
  app.add_option("A", args.a, "FILE or FILE#NAME; - is standard input")->required();
  app.add_option("B", args.b, "the same: what A is held to; with --reference, a job file");
  add_tolerance(app, args);
  app.add_flag("--json", args.json, "one JSON object, on one line");
  add_reference(app, args.reference);
  add_view(app, args);
  add_limit_options(app, args.limits);
}

namespace {

void check_without_reference(const CompareArgs& args) {
  const ReferenceArgs& reference = args.reference;
  if (args.b.empty())
    throw Error(ErrorKind::usage, "expected B, which A is held to, or --reference and a job");
  refuse_idle({{"--precision", !reference.precision.empty()},
               {"--sums", !reference.sums.empty()},
               {"--as", !reference.output.empty()}},
              "--reference");
  if (has_job_flags(reference.flags))
    throw Error(ErrorKind::usage, "flags of a job go with --reference");
}

/// What the reference has its own way of, so that flags cannot say it. A job's file may: it is one
/// of 'attn run'.
void check_reference(const CompareArgs& args) {
  const ReferenceArgs& reference = args.reference;
  if (args.tolerant())
    refuse_idle(
        {{"--precision", !reference.precision.empty()}, {"--sums", !reference.sums.empty()}},
        "the bound, which --rtol, --atol and --ulp replace");
  constexpr std::pair<const char*, const char*> kSettled[] = {
      {"outputs", "what A holds is compared; A#NAME picks one, --as NAME says which output it is"},
      {"compute", "the reference is computed in f64"},
      {"path", "the job is computed by path reference"},
      {"tokens", "labels are those that A holds"}};
  for (const auto& [key, why] : kSettled)
    if (reference.flags.texts.contains(key))
      throw Error(ErrorKind::usage, std::string("--") + key + ": " + why);
}

}  // namespace

void check(const CompareArgs& args) {
  if (args.reference.asked)
    check_reference(args);
  else
    check_without_reference(args);
  if (args.view.empty())
    refuse_idle({{"--of", !args.of.empty()},
                 {"--head", args.choice.head.has_value()},
                 {"--batch", args.choice.batch.has_value()},
                 {"--layer", args.choice.layer.has_value()}},
                "--view");
  if (args.view.empty() || args.view == "-") refuse_idle({{"--force", args.force}}, "--view=FILE");
  if (args.view == "-" && args.json)
    throw Error(ErrorKind::usage, "--view: beside --json the picture needs a file, --view=FILE");
  if (!args.view.empty()) draw_format(args.view);
}

}  // namespace attn
