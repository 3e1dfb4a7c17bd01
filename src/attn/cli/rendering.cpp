#include "attn/cli/rendering.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/cli/terminal.h"
#include "attn/draw/drawing_memory.h"
#include "attn/draw/heat_picture.h"
#include "attn/draw/joint_labels.h"
#include "attn/draw/pdf.h"
#include "attn/draw/png.h"
#include "attn/draw/svg.h"
#include "attn/io/tensor_part.h"
#include "attn/job/fields.h"
#include "attn/job/recorded_positions.h"
#include "attn/job/recorded_visibility.h"
#include "attn/problem/output_table.h"
#include "attn/problem/threads.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

/// "weights" of "JOB/weights", as tensors in a bundle are called.
std::string without_job(const std::string& name) { return name.substr(name.rfind('/') + 1); }

/// "queries" of "query"; `otherwise` for axes that are not named so.
std::string plural_of(std::string_view word, const char* otherwise) {
  return word == "query"                                      ? "queries"
         : word == "batch"                                    ? "batches"
         : word == "key" || word == "head" || word == "token" ? std::string(word) + "s"
                                                              : otherwise;
}

/// The names of all leading axes, of which some are known; "": not.
LeadingAxes with_known(const std::array<std::string_view, 3>& known) {
  std::vector<std::string> others(kLeadingAxes.rbegin(), kLeadingAxes.rend());
  for (const std::string_view name : known) std::erase(others, name);
  LeadingAxes axes;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    axes[k] = known[k];
    if (!known[k].empty()) continue;
    axes[k] = others.back();
    others.pop_back();
  }
  return axes;
}

}  // namespace

AxisNames axis_names(const ResultFile& result, const std::string& name) {
  AxisNames names;
  const Labels labels = result.labels(name);
  const auto from_end = [&](std::size_t position) -> std::string_view {
    const std::size_t rank = labels.axes.size();
    return position > rank ? std::string_view() : labels.axes[rank - position];
  };
  names.columns = plural_of(from_end(1), "columns");
  names.rows = plural_of(from_end(2), "rows");
  names.known = !labels.axes.empty();
  std::array<std::string_view, kLeadingAxes.size()> known = {};
  for (std::size_t k = 0; k < known.size(); ++k) known[k] = from_end(k + 3);
  names.leading = with_known(known);
  names.layers = labels.layers;
  return names;
}

bool warn_of_layers(const LayersOfFile& a, const LayersOfFile& b) {
  if (a.layers.empty() || b.layers.empty() || a.layers == b.layers) return false;
  const auto text = [](const LayersOfFile& one) {
    return printable(one.file) + " has layer" + (one.layers.size() > 1 ? "s " : " ") +
           join(one.layers, ", ", [](std::int64_t number) { return std::to_string(number); });
  };
  note("warning: " + text(a) + ", but " + text(b) + "; they are compared in this order");
  return true;
}

void warn_unknown_positions(const std::string& label) {
  note("warning: " + label +
       ": the positions of the queries are not known; statistics that need them are left out");
}

bool may_be_weights(const std::string& tensor) {
  const std::string name = without_job(tensor);
  if (const auto output = output_named(name)) return row_of(*output).is_weights;
  return find_field(name) == nullptr;
}

TensorMap tensors_of(const TensorRef& ref, TensorFiles& files) {
  if (ref.member.empty()) return files.all(ref.path);
  TensorMap tensors;
  tensors.set(ref.member, files.read(ref));
  return tensors;
}

std::string label_of(const std::string& path, const std::string& name) {
  return printable(path) + (name.empty() ? "" : ": ") + printable(name);
}

namespace {

std::vector<std::int64_t> selected_queries(const ResultFile& result) {
  const Json* rows = result.job("rows");
  const auto selected = rows == nullptr ? nullptr : rows->get<JsonIntegers>();
  if (selected == nullptr) return {};
  return {selected->begin(), selected->end()};
}

/// The tokens of the rows that were computed (--rows); without tokens, the rows' positions.
std::vector<std::string> tokens_of_rows(const std::vector<std::string>& tokens,
                                        const std::vector<std::int64_t>& selected) {
  if (selected.empty()) return tokens;
  if (tokens.empty()) {
    std::vector<std::string> positions;
    for (const std::int64_t row : selected) positions.push_back(std::to_string(row));
    return positions;
  }
  const auto count = static_cast<std::int64_t>(tokens.size());
  std::vector<std::string> picked;
  for (const std::int64_t row : selected) {
    const std::int64_t at = row < 0 ? row + count : row;
    if (at < 0 || at >= count) return tokens;
    picked.push_back(tokens[static_cast<std::size_t>(at)]);
  }
  return picked;
}

/// Labels of an axis whose elements are tokens, or whose meaning is unknown.
std::vector<std::string> labels_of(const std::string& axis, bool known, const ResultFile& result) {
  if (axis == "queries" || axis == "tokens" || (axis == "rows" && !known))
    return tokens_of_rows(result.tokens, selected_queries(result));
  if (axis != "keys" && (axis != "columns" || known)) return {};
  if (!result.key_tokens.empty()) return result.key_tokens;
  const Json* const of_job = result.job("key_tokens");
  return of_job != nullptr ? strings_of(*of_job) : result.tokens;
}

/// The end of a message that lists what the file contains instead.
std::string list_tensors(const std::vector<std::string>& names) {
  if (names.empty()) return ", nor any other tensor";
  if (names == std::vector<std::string>{""}) return "; its only tensor is unnamed: omit --of";
  return "; select one with --of: " + list_names(names);
}

/// Without a name: the weights, or the only tensor.
std::string name_in(const ResultFile& result, const std::string& requested,
                    const std::string& file) {
  const std::vector<std::string> names = result.tensors.names();
  const std::string wanted = requested.empty() ? std::string(name_of(Output::weights)) : requested;
  if (result.tensors.contains(wanted)) return wanted;
  if (requested.empty() && names.size() == 1) return names[0];
  const bool is_job = std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return find_field(name) != nullptr;
  });
  if (requested.empty() && !names.empty() && is_job)
    fail_usage(printable(file) + ": is a job: use 'attn run " + printable(file) + " --view'");
  fail_usage(printable(file) + ": has no tensor " + printable(wanted) +
             did_you_mean(wanted, names, NameKind::tensor) + list_tensors(names));
}

/// "Q K^T" with a superscript T.
std::string with_superscript_t(std::string text) {
  const std::size_t at = text.find("^T");
  return at == std::string::npos ? text : text.replace(at, 2, "\u1D40");
}

/// The width of the longest label, a token or a position, at 12 pixels per em.
double widest_label(const std::vector<std::string>& tokens) {
  double widest = text_width("00000000", 12);
  for (const std::string& token : tokens)
    widest = std::max(widest, text_width(printable(token), 12));
  return widest;
}

/// The positions of the queries of a tensor with these names of its leading axes.
PositionsOfMatrices positions_of(const Json& made_by, const Shape& shape, const LeadingAxes& axes) {
  PositionsOfMatrices positions;
  const std::size_t rank = shape.size();
  for (std::size_t k = 0; k + 2 < rank && k < axes.size(); ++k) {
    const std::size_t length = shape[rank - 3 - k];
    if (axes[k] == "batch") {
      positions.items = length;
      break;
    }
    positions.matrices_of_item *= length;
  }
  if (positions.items == 1) positions.matrices_of_item = 1;
  if (rank > 0)
    positions.queries =
        positions_in(made_by, positions.items, rank > 1 ? shape[rank - 2] : 1, shape[rank - 1]);
  return positions;
}

/// The keys that the queries of a tensor see, whose last axes are queries and keys.
std::optional<VisibleOfMatrices> visible_of(const Json& made_by, const Shape& shape,
                                            const LeadingAxes& axes) {
  const auto length_of = [&](std::string_view name) {
    const auto found = std::find(axes.begin(), axes.end(), name);
    const auto axis = static_cast<std::size_t>(found - axes.begin()) + 3;
    return found == axes.end() || axis > shape.size() ? 1 : shape[shape.size() - axis];
  };
  const std::size_t items = length_of("batch"), heads = length_of("head");
  std::optional<VisibleRanges> keys =
      visibility_in(made_by, items, heads, shape[shape.size() - 2], shape.back());
  if (!keys) return std::nullopt;
  const std::size_t each = keys->matrices().size() == items ? heads : 1;
  return VisibleOfMatrices{std::move(*keys), each};
}

/// Threads are not worth starting for small tensors.
std::size_t threads_for(const Tensor& tensor) {
  constexpr std::size_t kSmall = std::size_t{1} << 20;  // elements
  return tensor.size() < kSmall ? 1 : thread_count();
}

/// Whether the text has letters that are written from right to left: Hebrew, Arabic and others.
bool has_right_to_left(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); i += std::max<std::size_t>(utf8_length(text, i), 1)) {
    const std::uint32_t c = utf8_length(text, i) > 1 ? code_point(text, i) : 0;
    if ((c >= 0x590 && c < 0x900) || (c >= 0xFB1D && c < 0xFE00) || (c >= 0xFE70 && c < 0xFF00))
      return true;
  }
  return false;
}

/// Text of PNG and PDF is drawn from left to right and its letters are not joined.
void warn_of_text_direction(const HeatMap& map, const char* format) {
  for (const std::vector<std::string>& labels : {map.row_labels, map.column_labels})
    if (const auto found = std::find_if(labels.begin(), labels.end(), has_right_to_left);
        found != labels.end())
      return note("warning: " + std::string(format) +
                  " pictures show right-to-left text such as '" + *found +
                  "' from left to right; use .svg or .html");
}

/// Warns if two results have different tokens.
void warn_of_tokens(const std::vector<PageSet>& sets) {
  const JointLabels rows = joint_row_labels(sets), columns = joint_column_labels(sets);
  const JointLabels& axis = rows.different ? rows : columns;
  if (!axis.different) return;
  const std::string& name = rows.different ? sets[0].map.row_axis : sets[0].map.column_axis;
  note("warning: " + printable(sets[0].name) + " and " + printable(sets[1].name) +
       " have different tokens, first '" + axis.labels[*axis.different] + "' at " +
       std::to_string(*axis.different) + " of the " + name + "; the page shows both");
}

/// An SVG of at most 5 MB: heads are reduced to fewer cells if needed.
std::string svg_within_limit(const HeatMap& map, const PictureStyle& style) {
  constexpr std::size_t kMaxBytes = 5'000'000, kFewestCells = 8;
  std::string text = svg_of(heat_picture(map, style.dark), style);
  for (std::size_t cells = 192; text.size() > kMaxBytes && cells >= kFewestCells;
       cells -= cells / 4)
    text = svg_of(heat_picture(map, style.dark, cells), style);
  return text;
}

}  // namespace

std::optional<RenderFormat> find_render_format(const std::string& path) {
  if (path == "-") return RenderFormat::text;
  if (path.ends_with(".svg")) return RenderFormat::svg;
  if (path.ends_with(".pdf")) return RenderFormat::pdf;
  if (path.ends_with(".png")) return RenderFormat::png;
  if (path.ends_with(".html")) return RenderFormat::html;
  return std::nullopt;
}

RenderFormat render_format(const std::string& path) {
  if (const auto format = find_render_format(path)) return *format;
  fail_usage(printable(path) + ": expected a name that ends in " + kRenderSuffixes);
}

std::string description_of(const std::string& name, bool has_head_axis) {
  const auto gradient = gradient_named(name);
  if (gradient) return gradient_description(name_of(gradient->of));
  const auto output = output_named(name);
  const std::string text(output ? row_of(*output).description : "");
  return output == Output::context && has_head_axis ? text.substr(0, text.find(';')) : text;
}

HeatSource heat_source(const ResultFile& result, const std::string& requested,
                       const std::string& file) {
  HeatSource source;
  source.name = name_in(result, requested, file);
  source.key = source.name;
  source.tensor = result.tensors.at(source.name);
  const bool is_part = result.parts.contains(source.name);
  const std::string whole = is_part ? split_part(source.name).name : source.name;
  const std::string own_name = without_job(whole);
  source.zero_is_hidden = output_named(own_name) == Output::weights;
  source.is_gradient = gradient_named(own_name).has_value();
  source.is_signed = whole.ends_with(name_of(Output::scores)) ||  // also of other programs
                     source.is_gradient;
  source.is_weights = !source.is_signed && may_be_weights(whole);
  const AxisNames axes = axis_names(result, source.name);
  source.row_axis = axes.rows;
  source.column_axis = axes.columns;
  source.leading_axes = axes.leading;
  source.layers = axes.layers;
  const std::vector<std::string> labels = result.labels(source.name).axes;
  const bool has_head_axis = labels.empty()
                                 ? source.tensor.rank() == 4
                                 : std::find(labels.begin(), labels.end(), "head") != labels.end();
  source.description = with_superscript_t(description_of(own_name, has_head_axis));
  source.are_axes_certain = axes.known && result.made_by.find("job") != nullptr;
  const Json& made_by = made_by_of(result.made_by, source.name);
  source.positions = positions_of(made_by, source.tensor.shape(), axes.leading);
  source.row_tokens = labels_of(axes.rows, axes.known, result);
  source.column_tokens = result.column_names.empty() ? labels_of(axes.columns, axes.known, result)
                                                     : result.column_names;
  const bool of_pairs = axes.rows == "queries" && axes.columns == "keys";
  const std::string job = whole.substr(0, whole.size() - own_name.size());
  const Tensor* masked = result.tensors.find(job + std::string(name_of(Output::masked_scores)));
  if (of_pairs && masked != nullptr && masked->shape() == source.tensor.shape())
    source.masked = *masked;
  else if (of_pairs && source.tensor.rank() > 1)
    source.visible = visible_of(made_by, source.tensor.shape(), source.leading_axes);
  if (source.name.empty()) source.name = file;
  return source;
}

PageSet page_set(const HeatSource& given, const HeatChoice& choice, const std::string& file) {
  HeatSource source = given;
  LeadingAxes& axes = source.leading_axes;
  const auto call_first = [&](const char* name) {
    std::swap(axes[0], *std::find(axes.begin(), axes.end(), name));
  };
  const bool one_axis = source.tensor.rank() == 3 &&
                        (axes[0] == "batch" || (axes[0] == "head" && !source.are_axes_certain));
  if (one_axis && !choice.head.empty() && axes[0] == "batch") {
    call_first("head");
    note(source.name + " " + to_string(source.tensor.shape()) +
         ": --head selects from the first axis, which is the batch of the job");
  } else if (one_axis && !choice.batch.empty()) {
    call_first("batch");
  }
  const DType dtype = source.tensor.dtype();
  const bool wide = dtype == DType::f64 || (is_integer(dtype) && size_of(dtype) >= 4);
  PageSet set{file, make_heat_map(source, choice, threads_for(source.tensor)), wide ? 64 : 32};
  set.positions = source.positions;
  set.is_weights = source.is_weights;
  set.is_gradient = source.is_gradient;
  return set;
}

std::size_t rendering_bytes(const Shape& shape, DType dtype, const Job& job, RenderFormat format,
                            const RenderStyle& style, std::size_t steps) {
  constexpr std::size_t kEscaped = 6;  // "\\u0001"
  std::size_t labels = 0;
  double widest = 0;
  for (const auto* tokens : {&job.tokens, &labels_of_keys(job)}) {
    for (const std::string& token : *tokens) labels += kEscaped * token.size();
    widest = std::max(widest, widest_label(*tokens));
  }
  switch (format) {
    case RenderFormat::text:
      return saturating_sum(labels,
                            bytes_of_text(shape, terminal_style(style.colour, style.width)));
    case RenderFormat::svg:
      return saturating_sum(labels, bytes_of_svg(shape, widest));
    case RenderFormat::pdf:
      return saturating_sum(labels, bytes_of_pdf(shape, widest));
    case RenderFormat::png:
      return saturating_sum(labels, bytes_of_png(shape, widest, style.picture));
    case RenderFormat::html:
      break;
  }
  return saturating_sum(labels,
                        bytes_of_page(shape, dtype, style.max_html_bytes, thread_count(), steps));
}

Rendering render(const std::vector<PageSet>& sets, RenderFormat format, const RenderStyle& style) {
  const HeatMap& map = sets[0].map;
  switch (format) {
    case RenderFormat::text:
      return {printable_lines(heat_text(map, terminal_style(style.colour, style.width)), true), ""};
    case RenderFormat::svg:
      return {svg_within_limit(map, style.picture), ""};
    case RenderFormat::pdf:
      warn_of_text_direction(map, "PDF");
      return {pdf_of(heat_picture(map, style.picture.dark), style.picture), ""};
    case RenderFormat::png:
      warn_of_text_direction(map, "PNG");
      return {png_of(heat_picture(map, style.picture.dark), style.picture), ""};
    case RenderFormat::html:
      break;
  }
  for (const PageSet& set : sets)
    if (set.is_weights && !set.positions.queries) warn_unknown_positions(printable(set.name));
  warn_of_tokens(sets);
  Page page = make_page(sets, style.max_html_bytes, threads_for(map.cells.values));
  return {std::move(page.html), "page: " + page.text};
}

}  // namespace attn
