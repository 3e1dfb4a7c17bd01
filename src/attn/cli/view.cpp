// attn view: a tensor of a result as a heat map, on the terminal or as a picture.
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/layer_tensors.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/cli/weight_steps.h"
#include "attn/io/place_in_file.h"
#include "attn/io/staged_file.h"
#include "attn/job/job.h"
#include "attn/job/recorded_positions.h"
#include "attn/run/output_target.h"

namespace attn {
namespace {

struct ViewArgs {
  std::string file, other, output = "-";
  std::string tokens, key_tokens;
  HeatChoice choice;
  std::string of, title;
  RenderStyle style;
  LimitArgs limits;
  bool force = false;
};

/// Warns that the labels of a flag are not drawn if no axis has as many elements.
void check_labels(const std::string& flag, const std::vector<std::string>& labels,
                  std::initializer_list<std::size_t> lengths, const HeatSource& source) {
  if (labels.empty() || std::find(lengths.begin(), lengths.end(), labels.size()) != lengths.end())
    return;
  note("warning: " + flag + ": " + counted(labels.size(), "label") + " for " +
       printable(source.name) + " " + to_string(source.tensor.shape()) + "; positions are shown");
}

/// The tensor of a file to draw.
struct Drawn {
  ResultFile result;
  std::string name;                    ///< ""; the weights, or the only tensor
  std::optional<LayerTensors> layers;  ///< it consists of several tensors
  bool is_part = false;                ///< of a tensor
};

/// Of "FILE" or "FILE#NAME"; the latter is the same as --of NAME.
Drawn drawn_tensor(const std::string& file, const ViewArgs& args, TensorFiles& files) {
  const TensorRef ref = parse_tensor_ref(file);
  const std::string member = ref.member + ref.part;
  if (!member.empty() && !args.of.empty())
    fail_usage("--of: " + printable(file) + " already names the tensor to draw");
  Drawn drawn{read_result(ref.path, files), member.empty() ? args.of : member, {}};
  TensorMap& tensors = drawn.result.tensors;
  const std::string name = drawn.name.empty() ? std::string(name_of(Output::weights)) : drawn.name;
  if (!tensors.contains(name) || !ref.part.empty()) drawn.layers = join_layers(tensors, drawn.name);
  drawn.is_part = !member.empty() && !drawn.layers && !(ref.part.empty() && tensors.contains(name));
  if (drawn.layers) tensors.set(drawn.name = drawn.layers->name, drawn.layers->tensor);
  if (drawn.is_part) add_tensor(ref, name, files, drawn.result);
  return drawn;
}

/// The first of the axes before the last two is that of layers.
void set_layers(const LayerTensors& layers, HeatSource& source) {
  LeadingAxes& axes = source.leading_axes;
  std::string& first = axes[layers.tensor.rank() - 3];
  if (const auto other = std::find(axes.begin(), axes.end(), "layer"); other != axes.end())
    std::swap(first, *other);
  else
    first = "layer";
  source.layers = layers.numbers;
  source.series = layers.rest;
}

/// Without provenance, the first of four axes may be layers: --layer says so. A page without it
/// tells how.
void set_first_of_four(const ViewArgs& args, HeatSource& source) {
  const Shape& shape = source.tensor.shape();
  LeadingAxes& axes = source.leading_axes;
  if (shape.size() != 4 || source.are_axes_certain || axes[1] != "batch") return;
  const HeatChoice& choice = args.choice;
  if (!choice.layer.empty() && choice.batch.empty())
    std::swap(axes[1], *std::find(axes.begin(), axes.end(), "layer"));
  else if (shape[0] > 1 && choice.batch.empty() && render_format(args.output) == RenderFormat::html)
    note("warning: " + source.name + " " + to_string(shape) +
         ": the axes are taken as batch, head, L, S; if the first one is layers, add --layer 0:" +
         std::to_string(shape[0]));
}

PageSet set_of(const std::string& file, const ViewArgs& args, TensorFiles& files) {
  const std::string path = parse_tensor_ref(file).path;
  auto [result, name, layers, is_part] = drawn_tensor(file, args, files);
  if (!args.tokens.empty()) result.tokens = tokens_of_flag(args.tokens, "--tokens", files.budget());
  HeatSource source = heat_source(result, name, path);
  if (layers)
    set_layers(*layers, source);
  else
    set_first_of_four(args, source);
  if (!args.key_tokens.empty())
    source.column_tokens = tokens_of_flag(args.key_tokens, "--key-tokens", files.budget());
  if (source.tensor.rank() > 0) {
    const Shape& shape = source.tensor.shape();
    const std::size_t columns = shape[shape.size() - 1],
                      rows = source.tensor.rank() > 1 ? shape[shape.size() - 2] : 1;
    if (!args.tokens.empty()) check_labels("--tokens", result.tokens, {rows, columns}, source);
    if (!args.key_tokens.empty())
      check_labels("--key-tokens", source.column_tokens, {columns}, source);
  }
  PageSet set = page_set(source, args.choice, file);
  const bool is_page = render_format(args.output) == RenderFormat::html;
  if (is_page && !is_part && !layers && args.other.empty()) add_weight_steps(result, source, set);
  const bool is_whole =
      !is_part && !layers && args.choice.rows.empty() && args.choice.columns.empty();
  if (is_whole && path != "-" && is_page)
    set.source = place_in_file(files.file(path), source.key, files.limits().npz, files.budget());
  return set;
}

LayersOfFile drawn_layers(const std::string& file, const PageSet& set) {
  LayersOfFile drawn{file, {}};
  for (const HeatPanel& panel : set.map.panels)
    if (panel.layer && (drawn.layers.empty() || drawn.layers.back() != *panel.layer))
      drawn.layers.push_back(*panel.layer);
  return drawn;
}

/// Names the sets by their files without folders; if these are equal, without the folders before
/// the first that differs.
void name_files(std::vector<PageSet>& sets) {
  std::vector<std::string> names;
  for (const PageSet& set : sets) {
    const std::string path = parse_tensor_ref(set.name).path;
    const std::size_t folder = set.name.starts_with(path) ? path.rfind('/') + 1 : 0;
    names.push_back(set.name.substr(folder));
  }
  if (sets.size() == 2 && names[0] == names[1] && sets[0].name != sets[1].name) {
    const std::string &a = sets[0].name, &b = sets[1].name;
    const auto same = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    const std::size_t slash =
        same == 0 ? std::string::npos : a.rfind('/', static_cast<std::size_t>(same) - 1);
    for (std::size_t k = 0; k < 2; ++k) names[k] = sets[k].name.substr(slash + 1);
  }
  for (std::size_t k = 0; k < sets.size(); ++k) sets[k].name = names[k];
}

int view(const ViewArgs& args) {
  const RenderFormat format = render_format(args.output);
  if (!args.other.empty() && format != RenderFormat::html)
    fail_usage("comparing two files requires -o FILE.html");
  TensorFiles files(reading_limits(args.limits, FileAccess::map));
  std::vector<PageSet> sets = {set_of(args.file, args, files)};
  if (!args.other.empty()) sets.push_back(set_of(args.other, args, files));
  if (!args.title.empty())
    for (PageSet& set : sets) set.map.title = printable(args.title);
  name_files(sets);
  OutputFile out(args.output, {.force = args.force});
  if (sets.size() == 2)
    warn_of_layers(drawn_layers(args.file, sets[0]), drawn_layers(args.other, sets[1]));
  const Rendering drawing = render(sets, format, args.style);
  out.write(drawing.bytes);
  out.commit();
  if (!drawing.note.empty()) note(drawing.note);
  return 0;
}

std::vector<Option> choice_options(ViewArgs& args) {
  HeatChoice& choice = args.choice;
  return in_group(
      "Drawing",
      {suggesting(
           text("--of", args.of, "NAME", "tensor to draw; default: weights, or the only tensor"),
           request_names()),
       text("--rows", choice.rows, "LIST",
            "rows (queries) to draw: indices and ranges, such as 0:32,-1"),
       text("--cols", choice.columns, "LIST", "columns (keys) to draw"),
       number("--vmin", choice.low, NumberRange::any, "X",
              "value at the low end of the colour scale"),
       number("--vmax", choice.high, NumberRange::any, "X",
              "value at the high end of the colour scale"),
       flag("--log", choice.logarithmic, "logarithmic colour scale, for values > 0"),
       flag("--linear", choice.linear,
            "linear colour scale, also for weights of more than 64 keys"),
       text("--title", args.title, "TEXT", "title, instead of the name of the tensor"),
       text("--tokens", args.tokens, "A,B,...",
            "token labels, instead of those in the file; @FILE reads one from each line"),
       text("--key-tokens", args.key_tokens, "A,B,...",
            "token labels of the keys, if they differ")});
}

/// Options that apply only to some formats.
void add_requirements(Command& command, const ViewArgs& args) {
  const auto is_text = [&args] { return args.output == "-"; };
  command.requirements = {{{"--force"}, "-o FILE", [&args] { return args.output != "-"; }},
                          {{"--color"},
                           "text on standard output",
                           [&args, is_text] { return is_text() || args.style.colour == "auto"; }},
                          {{"--width"}, "text on standard output", is_text}};
  add_picture_requirements(command, args.output, "-o ");
}

}  // namespace

Command view_command() {
  const auto args = std::make_shared<ViewArgs>();
  Command command;
  command.description =
      "Draws a tensor as a heat map. For weights and scores, rows are queries and columns are "
      "keys.";
  command.example =
      "  attn view result.npz\n"
      "  attn view result.npz --of scores --head 3 -o scores.svg\n"
      "  attn view before.npz after.npz -o page.html";
  command.add(
      {required(positional(
           "FILE", args->file,
           "FILE or FILE#NAME: .npz, .safetensors, .json, .npy or .csv; - for standard input")),
       positional("OTHER", args->other, "second result, to compare on an HTML page"),
       text("-o,--output", args->output, "FILE",
            "FILE.svg, .pdf, .png or .html (an interactive page); default: text on stdout"),
       flag("--force", args->force, "overwrite FILE if it exists")});
  command.add(terminal_options(args->style));
  command.add(picture_style_options(args->style));
  command.add(choice_options(*args));
  command.add(in_group("Drawing", panel_options(args->choice)));
  add_limit_options(command, args->limits);
  add_requirements(command, *args);
  command.conflicts = {{"--log", "--linear"}};
  command.action = [args] { return view(*args); };
  return command;
}

}  // namespace attn
