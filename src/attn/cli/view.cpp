// attn view: a tensor of a result as a heat map, on the terminal or as a picture.
#include <CLI/CLI.hpp>
#include <memory>

#include "attn/cli/command.h"
#include "attn/cli/draw.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

/// What was typed.
struct ViewArgs {
  std::string file, output = "-";
  std::vector<std::string> tokens, key_tokens;
  HeatChoice choice;
  std::string of, colour = "auto";
  std::size_t width = 0;
  bool force = false;
};

int view(const ViewArgs& args) {
  const DrawFormat format = draw_format(args.output);
  TensorFiles files;
  ResultFile result = read_result(args.file, files);
  if (!args.tokens.empty()) result.tokens = args.tokens;
  HeatSource source = heat_source(result, args.of, args.file);
  if (!args.key_tokens.empty()) source.column_tokens = args.key_tokens;
  OutputFile out(args.output, {args.force, {args.file}});
  const HeatMap map = make_heat_map(source, args.choice);
  out.write(drawn(map, format, terminal_style(args.colour, args.width)));
  out.commit();
  return 0;
}

void add_choice(CLI::App& app, ViewArgs& args) {
  HeatChoice& choice = args.choice;
  const auto add = [&](const std::string& flag, auto& place, const std::string& what,
                       const std::string& type) {
    return app.add_option(flag, place, what)->type_name(type)->group("What is drawn");
  };
  add("--of", args.of, "which tensor; default: weights, or the only one", "NAME");
  add("--head", choice.head, "this head alone; default: all, side by side", "I");
  add("--batch", choice.batch, "this batch alone", "I");
  add("--layer", choice.layer, "this layer alone (five axes: layer, batch, head, L, S)", "I");
  add("--rows", choice.rows, "these queries: indices and ranges, as 0:32,-1", "LIST");
  add("--cols", choice.columns, "these keys", "LIST");
  add("--vmin", choice.low, "the value at the low end of the colours", "X");
  add("--vmax", choice.high, "the value at the high end", "X");
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
      "Draws a tensor of a result as a heat map: rows are queries, columns are keys.\n\n"
      "Example:\n"
      "  attn view result.npz\n"
      "  attn view result.npz --of scores --head 3 -o scores.svg");
  app.add_option("FILE", args->file, ".npz, .safetensors, .json, .npy or .csv; - is standard input")
      ->required();
  app.add_option("-o,--output", args->output,
                 "FILE.svg or FILE.png; default: text on stdout, for a terminal")
      ->type_name("FILE");
  app.add_flag("--force", args->force, "replace FILE where it exists");
  app.add_option("--color", args->colour, "colours on the terminal: auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WORD");
  app.add_option("--width", args->width, "columns of the terminal; default: as many as it has")
      ->type_name("N")
      ->check(CLI::Range(20, 1000));
  add_choice(app, *args);
  return [args] { return view(*args); };
}

}  // namespace attn
