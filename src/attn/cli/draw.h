// From tensors and what is known about them to a drawing, on the terminal or in a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/report/heat_map.h"
#include "attn/report/page.h"
#include "attn/result/result_file.h"

namespace attn {

/// What "FILE" as a drawing's name means; nothing else can be drawn to.
enum class DrawFormat { text, svg, png, html };

/// "-" is text on standard output; nothing for another suffix than .svg, .png and .html.
std::optional<DrawFormat> find_draw_format(const std::string& path);

/// The same. Errors: usage, for another suffix.
DrawFormat draw_format(const std::string& path);

/// What shapes a drawing beside its numbers.
struct DrawStyle {
  std::string colour = "auto";               ///< on the terminal: auto, always or never
  std::size_t width = 0;                     ///< columns; 0: the terminal's
  std::size_t most_html_bytes = 50'000'000;  ///< a page's values are coarser beyond
};

/// The tensor called `name` ("": the only one) with what belongs to it: labels, hidden cells, the
/// names of its axes.
/// Errors: usage, for a tensor that is not there.
HeatSource heat_source(const ResultFile& result, const std::string& name, const std::string& file);

/// The page's set for a source: its heat map under the file's name.
PageSet page_set(const HeatSource& source, const HeatChoice& choice, const std::string& file);

/// What drawn() takes for one set in the usual style, at most, beside the tensors: known from
/// shapes and labels alone.
std::size_t bytes_to_draw(const Shape& shape, DType dtype, const std::vector<std::string>& tokens,
                          DrawFormat format);

/// One set in any format, two as HTML. Says on stderr what an HTML page will hold before it is
/// made.
std::string drawn(const std::vector<PageSet>& sets, DrawFormat format, const DrawStyle& style);

}  // namespace attn
