// attn mask: draws or writes which keys each query sees.
#include "attn/problem/mask.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/emit.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/rendering.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/job/fields.h"
#include "attn/model/model_job.h"
#include "attn/problem/named_masks.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

struct MaskArgs {
  std::string job, shape;
  JobFlags flags;
  EmitArgs emit;
  RenderStyle style;
  LimitArgs limits;
};

/// The keys that decide what a query sees. The first ones are used most.
constexpr std::string_view kVisibilityKeys[] = {
    "causal",        "alignment",     "window",         "mask_rule",    "mask_tables",
    "chunk",         "sink_tokens",   "prefix_lengths", "tree_parents", "blocks",
    "block_size",    "mask",          "key_lengths",    "documents",    "key_mask",
    "query_lengths", "key_documents", "causal_offset",  "cu_seqlens_q", "cu_seqlens_k",
    "mask_polarity", "short_mask",    "key_indices",    "index_block",  "index_counts",
    "duplicates",    "convention",    "rows",           "key_starts"};
constexpr std::size_t kCommonKeys = 14;

/// "8,12" as (L, S), "2,4,8,12" as (B, H, L, S). Errors: usage.
Shape parsed_shape(const std::string& text) {
  Shape shape;
  for (const std::string& part : split_at_commas(text)) {
    std::size_t length = 0;
    const char* const end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, length);
    if (error != std::errc() || rest != end) shape.clear();
    if (error != std::errc() || rest != end) break;
    shape.push_back(length);
  }
  if (shape.size() != 2 && shape.size() != 4)
    fail_usage({.where = {"--shape"},
                .expected = "L,S or B,H,L,S, such as 8,8",
                .found = "'" + printable(text) + "'"});
  return shape;
}

/// Adds queries and keys of this shape, with one column of zeros. Errors: usage.
void add_inputs(const Shape& shape, Document& document, ReadBudget& budget) {
  for (const auto& [input, axis] : {std::pair{Input::Q, 2}, std::pair{Input::K, 1}}) {
    if (document.find(name_of(input)) != nullptr)
      fail_usage("--shape: not used with a job that has " + std::string(name_of(input)));
    Shape of_input(shape.begin(), shape.end() - 2);
    of_input.push_back(shape[shape.size() - static_cast<std::size_t>(axis)]);
    of_input.push_back(1);
    budget.charge(saturating_product({element_count(of_input), sizeof(float)}), "--shape",
                  "compute");
    document.set({.key = std::string(name_of(input)),
                  .value = Json{},
                  .origin = "--shape",
                  .folder = "",
                  .from_flag = true,
                  .numbers = std::make_shared<const Tensor>(DType::f32, of_input)});
  }
}

/// How many of the pairs in rows [row, row + tall) and columns [column, column + wide) are visible:
/// '#' all, '+' some, '.' none.
char mark_of(const bool* matrix, const Shape& shape, std::size_t row, std::size_t tall,
             std::size_t column, std::size_t wide) {
  const std::size_t rows = shape[2], columns = shape[3];
  bool any = false, all = true;
  for (std::size_t i = row; i < std::min(row + tall, rows); ++i)
    for (std::size_t j = column; j < std::min(column + wide, columns); ++j)
      (matrix[i * columns + j] ? any : all) = matrix[i * columns + j];
  return all ? '#' : any ? '+' : '.';
}

/// A line of marks for each query, or for some adjacent ones if there are too many.
std::string text_of(const Tensor& visible, const Inputs& in, std::size_t width) {
  constexpr std::size_t kMostLines = 64;
  const Shape& shape = visible.shape();
  const std::size_t rows = shape[2], columns = shape[3];
  const std::size_t label =
      std::to_string(in.rows.empty() ? 0 : in.rows[in.rows.size() - 1]).size() + 4;
  const std::size_t most = std::max<std::size_t>(8, width > label ? width - label : 0);
  const std::size_t wide = std::max<std::size_t>(1, (columns + most - 1) / most);
  const std::size_t tall = std::max<std::size_t>(1, (rows + kMostLines - 1) / kMostLines);
  const bool is_reduced = wide > 1 || tall > 1;
  const auto all = visible.data<bool>();
  const auto count = static_cast<std::size_t>(std::count(all.begin(), all.end(), true));
  std::string text = "mask " + to_string(shape[0] * shape[1] == 1 ? Shape{rows, columns} : shape) +
                     ": " + std::to_string(count) + " of " + std::to_string(all.size()) +
                     " pairs are visible";
  if (!all.empty())
    text += " (" + six_digits(100 * static_cast<double>(count) / static_cast<double>(all.size())) +
            " %)";
  text += is_reduced ? "; # all, + some, . none of " + std::to_string(tall) + " x " +
                           std::to_string(wide) + " pairs\n"
                     : "; # visible, . hidden\n";
  if (const std::string rule = named_rule(in); !rule.empty()) text += "mask_rule: " + rule + "\n";
  for (std::size_t matrix = 0; matrix < shape[0] * shape[1]; ++matrix) {
    if (shape[0] > 1) text += "batch " + std::to_string(matrix / shape[1]);
    if (shape[0] > 1 && shape[1] > 1) text += ", ";
    if (shape[1] > 1) text += "head " + std::to_string(matrix % shape[1]);
    if (shape[0] * shape[1] > 1) text += '\n';
    for (std::size_t row = 0; row < rows; row += tall) {
      const std::string number = std::to_string(in.rows[row]);
      text += std::string(label - 2 - std::min(label - 2, number.size()), ' ') + number + "  ";
      for (std::size_t column = 0; column < columns; column += wide)
        text += mark_of(all.data() + matrix * rows * columns, shape, row, tall, column, wide);
      text += '\n';
    }
  }
  return text;
}

/// A picture or a page, in which the visible pairs have the value 1.
Rendering drawing_of(const Tensor& visible, const Job& job, const MaskArgs& args) {
  HeatSource source;
  source.tensor = cast(visible, DType::f32);
  source.name = source.key = "mask";
  source.description = "1: the query (row) sees the key (column)";
  source.masked = source.tensor;  // hidden where it is -inf
  for (float& x : source.masked->mutable_data<float>())
    x = x == 0 ? -std::numeric_limits<float>::infinity() : 0;
  source.is_weights = false;
  source.row_tokens = job.tokens;
  source.column_tokens = labels_of_keys(job);
  return render({page_set(source, {}, "mask")}, render_format(args.emit.output), args.style);
}

int mask(const MaskArgs& args) {
  TensorFiles files(limits_of(args.limits));
  Document document = job_document(args.job, args.flags, files);
  if (args.job.empty() && args.shape.empty())
    fail_usage("expected a job, or --shape L,S for numbers of queries and keys");
  if (!args.shape.empty()) add_inputs(parsed_shape(args.shape), document, files.budget());
  document.erase("outputs");
  Job job = read_job(std::move(document), files);
  job.outputs = {Output::scores};
  const PreparedJob prepared = prepare_job(job);
  const Inputs& in = prepared.inputs;
  const Shape shape = shape_of_visible_keys(in);
  files.budget().charge(saturating_product({2, element_count(shape)}), "the mask", "compute");
  const Tensor visible = visible_keys(in);
  if (args.emit.output == "-") {
    const std::size_t width = args.style.width > 0 ? args.style.width : terminal_width(1);
    print(text_of(visible, in, width));
    return 0;
  }
  const Tensor result = shape[0] * shape[1] == 1 ? visible.reshaped({shape[2], shape[3]}) : visible;
  if (!find_render_format(args.emit.output)) {
    TensorMap tensors;
    tensors.set("", result);
    emit_tensors(tensors, args.emit);
    return 0;
  }
  OutputFile out(args.emit.output, {.force = args.emit.force});
  const Rendering drawing = drawing_of(result, job, args);
  out.write(drawing.bytes);
  out.commit();
  if (!drawing.note.empty()) note(drawing.note);
  return 0;
}

}  // namespace

Command mask_command() {
  const auto args = std::make_shared<MaskArgs>();
  args->emit.alone = "mask";
  args->emit.pictures = kRenderSuffixes;
  Command command;
  command.description =
      "Draws which keys (columns) each query (row) sees, by all masks of a job or by flags alone.";
  command.example =
      "  attn mask --shape 8,8 --causal --window 2,0\n"
      "  attn mask --shape 64,64 --mask-rule 'k < 9 or q >= k' -o mask.svg\n"
      "  attn mask job.json -o mask.npy";
  command.add({positional("JOB", args->job, "job file, with or without queries and keys"),
               common(text("--shape", args->shape, "L,S",
                           "numbers of queries and keys, or B,H,L,S, instead of Q and K")),
               common(text("-o,--output", args->emit.output, "FILE",
                           "boolean array (.npy, .npz, ...), picture (.svg, .pdf, .png) or page "
                           "(.html); default: text")),
               flag("--force", args->emit.force, "overwrite FILE if it exists"),
               integer("--width", args->style.width, {20, 1000}, "N",
                       "width of the text in columns; default: that of the terminal")});
  for (Option& option : job_options(args->flags)) {
    const auto is_its_key = [&](std::string_view key) {
      return find_field(key)->flag == option.names.front();
    };
    const auto first = std::begin(kVisibilityKeys), last = std::end(kVisibilityKeys);
    const auto found = std::find_if(first, last, is_its_key);
    if (found == last) continue;
    option.is_common = found < first + kCommonKeys;
    command.add(std::move(option));
  }
  command.add(picture_style_options(args->style));
  add_limit_options(command, args->limits);
  command.requirements.push_back(
      {{"--force"}, "-o FILE", [args = args.get()] { return args->emit.output != "-"; }});
  command.requirements.push_back({{"--width"}, "text on standard output", [args = args.get()] {
                                    return args->emit.output == "-";
                                  }});
  add_picture_requirements(command, args->emit.output, "-o ");
  command.action = [args] { return mask(*args); };
  return command;
}

}  // namespace attn
