// attn view: a tensor of a result as a heat map, on the terminal or as a picture.
#include <CLI/CLI.hpp>
#include <memory>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/cli/command.h"
#include "attn/cli/draw.h"
#include "attn/cli/idle.h"
#include "attn/cli/limit_options.h"
#include "attn/cli/values.h"
#include "attn/io/output_file.h"
#include "attn/job/limits.h"
#include "attn/result/output_target.h"

namespace attn {
namespace {

/// What was typed.
struct ViewArgs {
  std::string file, other, output = "-";
  std::vector<std::string> tokens, key_tokens;
  HeatChoice choice;
  std::string of;
  DrawStyle style;
  LimitArgs limits;
  bool force = false;
};

/// Whether a page can look values up in the file (report/page/source.js).
bool read_by_pages(const std::string& file, TensorFiles& files) {
  const Format format = format_of(files.file(file));
  return file != "-" && format != Format::json && format != Format::csv;
}

/// Of "FILE" or "FILE#NAME", which counts as --of NAME.
PageSet set_of(const std::string& file, const ViewArgs& args, TensorFiles& files) {
  const auto [path, member] = parse_tensor_ref(file);
  if (!member.empty() && !args.of.empty())
    throw Error(ErrorKind::usage,
                "--of: " + printable(file) + " says already which tensor is drawn");
  ResultFile result = read_result(path, files);
  if (!member.empty() && !result.tensors.contains(member)) files.read({path, member});  // says so
  if (!args.tokens.empty()) result.tokens = args.tokens;
  HeatSource source = heat_source(result, member.empty() ? args.of : member, path);
  if (!args.key_tokens.empty()) source.column_tokens = args.key_tokens;
  PageSet set = page_set(source, args.choice, file);
  if (!read_by_pages(path, files)) set.key.reset();
  return set;
}

/// What this kind of drawing does not have.
void refuse_foreign(const ViewArgs& args, DrawFormat format) {
  const DrawStyle usual, &style = args.style;
  if (args.output == "-") refuse_idle({{"--force", args.force}}, "-o FILE");
  if (format != DrawFormat::html)
    refuse_idle({{"--max-html-bytes", style.most_html_bytes != usual.most_html_bytes}},
                "-o FILE.html");
  if (format != DrawFormat::text)
    refuse_idle(
        {{"--color", style.colour != usual.colour}, {"--width", style.width != usual.width}},
        "text on standard output only");
}

int view(const ViewArgs& args) {
  const DrawFormat format = draw_format(args.output);
  if (!args.other.empty() && format != DrawFormat::html)
    throw Error(ErrorKind::usage, "two files are compared on a page: -o FILE.html");
  refuse_foreign(args, format);
  TensorFiles files(reading_limits(args.limits, FileAccess::read));
  std::vector<PageSet> sets = {set_of(args.file, args, files)};
  if (!args.other.empty()) sets.push_back(set_of(args.other, args, files));
  OutputFile out(args.output, {.force = args.force, .inputs = files.paths()});
  out.write(drawn(sets, format, args.style));
  out.commit();
  return 0;
}

void add_choice(CLI::App& app, ViewArgs& args) {
  HeatChoice& choice = args.choice;
  const auto add = [&](const std::string& flag, auto& place, const std::string& what,
                       const std::string& type) {
    return app.add_option(flag, place, what)->type_name(type)->group("What is drawn");
  };
  add("--of", args.of, "which tensor; default: weights, or the only one", "NAME")
      ->check(offering(job_output_names()));
  take_whole(add("--head", choice.head, "this head alone; default: all, side by side", "I"));
  take_whole(add("--batch", choice.batch, "this batch alone", "I"));
  take_whole(
      add("--layer", choice.layer, "this layer alone (five axes: layer, batch, head, L, S)", "I"));
  add("--rows", choice.rows, "these rows (queries): indices and ranges, as 0:32,-1", "LIST");
  add("--cols", choice.columns, "these columns (keys)", "LIST");
  take_number(add("--vmin", choice.low, "the value at the low end of the colours", "X"), Sign::any);
  take_number(add("--vmax", choice.high, "the value at the high end", "X"), Sign::any);
  app.add_flag("--log", choice.logarithmic, "colours by the logarithm; for values above 0")
      ->group("What is drawn");
  add("--tokens", args.tokens, "labels, instead of those in the file", "A,B,...")->delimiter(',');
  add("--key-tokens", args.key_tokens, "labels of the keys, where they have their own", "A,B,...")
      ->delimiter(',');
}

}  // namespace

Action add_view(CLI::App& app) {
  const auto args = std::make_shared<ViewArgs>();
  app.description(
      "Draws a tensor of a result as a heat map; of weights and scores, rows are queries and\n"
      "columns are keys.\n\n"
      "Example:\n"
      "  attn view result.npz\n"
      "  attn view result.npz --of scores --head 3 -o scores.svg\n"
      "  attn view before.npz after.npz -o page.html");
  app.add_option("FILE", args->file,
                 "FILE or FILE#NAME: .npz, .safetensors, .json, .npy or .csv; - is standard input")
      ->required();
  app.add_option("OTHER", args->other, "a second result to compare with, on a page");
  app.add_option("-o,--output", args->output,
                 "FILE.svg, FILE.png, or FILE.html, a page to explore; default: text on stdout")
      ->type_name("FILE");
  app.add_flag("--force", args->force, "replace FILE where it exists");
  app.add_option("--color", args->style.colour, "colours on the terminal: auto, always or never")
      ->check(one_of({"auto", "always", "never"}))
      ->type_name("WORD");
  take_whole(app.add_option("--width", args->style.width,
                            "columns of the terminal; default: as many as it has"),
             20, 1000)
      ->type_name("N");
  const auto page_size = [&bytes = args->style.most_html_bytes](const std::string& text) {
    bytes = parse_size(text, "--max-html-bytes");
  };
  app.add_option_function<std::string>(
         "--max-html-bytes", page_size,
         "how large a page may be, as 20M; values become coarser; default: 50000000")
      ->type_name("SIZE");
  add_choice(app, *args);
  add_expand_option(app, args->limits);
  return [args] { return view(*args); };
}

}  // namespace attn
