// From tensors and what is known about them to a drawing, on the terminal or in a file.
#pragma once

#include <string>

#include "attn/cli/terminal.h"
#include "attn/job/result_file.h"
#include "attn/report/heat_map.h"

namespace attn {

/// What "FILE" as a drawing's name means; nothing else can be drawn to.
enum class DrawFormat { text, svg, png };

/// "-" is text on standard output. Errors: usage, for another suffix than .svg and .png.
DrawFormat draw_format(const std::string& path);

/// The tensor called `name` ("": the only one) with what belongs to it: labels, hidden cells, the
/// names of its axes.
/// Errors: usage, for a tensor that is not there.
HeatSource heat_source(const ResultFile& result, const std::string& name, const std::string& file);

/// The map as text, SVG or PNG.
std::string drawn(const HeatMap& map, DrawFormat format, const TerminalStyle& style);

}  // namespace attn
