// Renders tensors as heat maps: text, SVG, PNG or HTML.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/report/heat_map.h"
#include "attn/report/page.h"
#include "attn/result/result_file.h"

namespace attn {

enum class RenderFormat { text, svg, png, html };

/// By suffix; "-" is text on standard output. Empty for an unknown suffix.
std::optional<RenderFormat> find_render_format(const std::string& path);

/// The same, but errors: usage, for an unknown suffix.
RenderFormat render_format(const std::string& path);

struct RenderStyle {
  std::string colour = "auto";               ///< of text: auto, always or never
  std::size_t width = 0;                     ///< of text, in columns; 0: that of the terminal
  std::size_t most_html_bytes = 50'000'000;  ///< above it, values are stored less precisely
};

/// The tensor `name` with its labels, hidden cells and axis names. "" selects the weights, or the
/// only tensor. Errors: usage, if there is no such tensor.
HeatSource heat_source(const ResultFile& result, const std::string& name, const std::string& file);

/// The data of one heat map for an HTML page.
PageSet page_set(const HeatSource& source, const HeatChoice& choice, const std::string& file);

/// An upper bound on the memory of render() for one set, without the tensors themselves.
std::size_t rendering_bytes(const Shape& shape, DType dtype, const std::vector<std::string>& tokens,
                            RenderFormat format, const RenderStyle& style);

/// Renders one set in any format, or two as HTML. For HTML, writes a note about the page's contents
/// first.
std::string render(const std::vector<PageSet>& sets, RenderFormat format, const RenderStyle& style);

}  // namespace attn
