// Renders tensors that the command line names as heat maps: text, SVG, PNG or HTML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/draw/heat_map.h"
#include "attn/draw/page.h"
#include "attn/draw/picture.h"
#include "attn/io/tensor_file.h"
#include "attn/job/job.h"
#include "attn/run/result_file.h"

namespace attn {

struct AxisNames {
  std::string rows = "rows", columns = "columns";
  /// The axes before the last two, from the last to the first.
  LeadingAxes leading = kLeadingAxes;
  std::vector<std::int64_t> layers = {};  ///< their numbers in the model; empty: 0, 1, ...
  bool known = false;                     ///< whether the tensor has labels
};

/// The axis names of the tensor `name` in a result, from its labels (job/labels.h). Tensors without
/// labels have rows and columns.
AxisNames axis_names(const ResultFile& result, const std::string& name);

/// A file and the numbers in the model of the layers that it holds; empty if not known.
struct LayersOfFile {
  std::string file;
  std::vector<std::int64_t> layers;
};

/// Warns, and returns true, if both are known and differ.
bool warn_of_layers(const LayersOfFile& a, const LayersOfFile& b);

/// Warns that the positions of the queries of this file or tensor are unknown (positions_in()).
void warn_unknown_positions(const std::string& label);

/// Whether weights may have this name: a tensor of another program, or an output of weights.
bool may_be_weights(const std::string& tensor);

/// All tensors of "FILE", or the one of "FILE#NAME".
TensorMap tensors_of(const TensorRef& ref, TensorFiles& files);

/// "FILE" or "FILE: NAME", for messages; safe to print.
std::string label_of(const std::string& path, const std::string& name);

enum class RenderFormat { text, svg, pdf, png, html };

/// The suffixes of files: ".svg, .pdf, .png or .html".
inline constexpr const char* kRenderSuffixes = ".svg, .pdf, .png or .html";

/// By suffix; "-" is text on standard output. Empty for an unknown suffix.
std::optional<RenderFormat> find_render_format(const std::string& path);

/// The same, but errors: usage, for an unknown suffix.
RenderFormat render_format(const std::string& path);

struct RenderStyle {
  std::string colour = "auto";              ///< of text: auto, always or never
  std::size_t width = 0;                    ///< of text, in columns; 0: that of the terminal
  PictureStyle picture;                     ///< of SVG, PDF and PNG
  std::size_t max_html_bytes = 50'000'000;  ///< above it, values are stored less precisely
};

/// What an output or a gradient is; "" for other names. The heads of a context are concatenated,
/// unless it has an axis of heads.
std::string description_of(const std::string& name, bool has_head_axis);

/// The tensor `name` with its labels, hidden cells and axis names. "" selects the weights, or the
/// only tensor. Errors: usage, if there is no such tensor.
HeatSource heat_source(const ResultFile& result, const std::string& name, const std::string& file);

/// The data of one heat map for an HTML page.
PageSet page_set(const HeatSource& source, const HeatChoice& choice, const std::string& file);

/// An upper bound on the memory of render() for one set, without the tensors themselves. A page may
/// have `steps` bytes about how weights came about (raw_bytes_of_steps()).
std::size_t rendering_bytes(const Shape& shape, DType dtype, const Job& job, RenderFormat format,
                            const RenderStyle& style, std::size_t steps = 0);

struct Rendering {
  std::string bytes;
  std::string note;  ///< what a page contains, to be printed when its file is there; "": nothing
};

/// Renders one set in any format, or two as HTML.
Rendering render(const std::vector<PageSet>& sets, RenderFormat format, const RenderStyle& style);

}  // namespace attn
