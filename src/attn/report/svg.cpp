#include "attn/report/svg.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "attn/base/text.h"
#include "attn/report/markup.h"

namespace attn {
namespace {

/// With at most two digits after the point.
std::string number(double value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 2);
  std::string out(text.data(), end.ptr);
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string hex(Rgb colour) {
  std::string text = "#";
  for (const std::uint8_t channel : {colour.red, colour.green, colour.blue})
    append_hex(text, channel);
  return text;
}

std::string attributes(const Box& box) {
  return " x=\"" + number(box.x) + "\" y=\"" + number(box.y) + "\" width=\"" + number(box.width) +
         "\" height=\"" + number(box.height) + "\"";
}

void append_svg(std::string& text, const BoxShape& shape) {
  text += "<rect" + attributes(shape.box) +
          (shape.outlined ? " fill=\"none\" stroke=\"" : " fill=\"") + hex(shape.colour) + "\"/>\n";
}

/// Adjacent cells of a row with the same fill.
struct Run {
  std::uint32_t fill, first, count;
};

constexpr std::uint32_t kHiddenFill = 1u << 24, kNanFill = kHiddenFill + 1;  // beyond all colours

std::uint32_t fill_of(const CellsShape& shape, std::size_t cell) {
  if (shape.kinds[cell] == CellKind::hidden) return kHiddenFill;
  if (shape.kinds[cell] == CellKind::nan) return kNanFill;
  const Rgb colour = shape.colours[cell];
  return static_cast<std::uint32_t>(colour.red << 16 | colour.green << 8 | colour.blue);
}

std::string attribute_of(std::uint32_t fill) {
  if (fill == kHiddenFill) return "url(#hidden)";
  if (fill == kNanFill) return "url(#nan)";
  const auto channel = [fill](int shift) { return static_cast<std::uint8_t>(fill >> shift); };
  return hex({channel(16), channel(8), channel(0)});
}

/// By fill, then from top to bottom.
std::vector<Run> runs_of(const CellsShape& shape) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < shape.rows; ++i)
    for (std::size_t j = 0; j < shape.columns; ++j) {
      const std::size_t cell = i * shape.columns + j;
      const std::uint32_t fill = fill_of(shape, cell);
      if (j > 0 && runs.back().fill == fill)
        ++runs.back().count;
      else
        runs.push_back({fill, static_cast<std::uint32_t>(cell), 1});
    }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return std::pair(a.fill, a.first) < std::pair(b.fill, b.first);
  });
  return runs;
}

/// One path per colour, so that large matrices take few bytes per cell. Adjacent cells of a row
/// with the same colour become one rectangle.
void append_svg(std::string& text, const CellsShape& shape) {
  const double wide = shape.box.width / static_cast<double>(shape.columns);
  const double tall = shape.box.height / static_cast<double>(shape.rows);
  const std::vector<Run> runs = runs_of(shape);
  text += "<g shape-rendering=\"crispEdges\">\n";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (r == 0 || runs[r].fill != runs[r - 1].fill)
      text += (r == 0 ? "<path fill=\"" : "\"/>\n<path fill=\"") + attribute_of(runs[r].fill) +
              "\" d=\"";
    const std::size_t row = runs[r].first / shape.columns, column = runs[r].first % shape.columns;
    const std::string run = number(static_cast<double>(runs[r].count) * wide);
    text += "M" + number(shape.box.x + static_cast<double>(column) * wide) + " " +
            number(shape.box.y + static_cast<double>(row) * tall) + "h" + run + "v" + number(tall) +
            "h-" + run + "z";
  }
  text += runs.empty() ? "</g>\n" : "\"/>\n</g>\n";
}

void append_svg(std::string& text, const TextShape& shape) {
  const std::string x = number(shape.x), y = number(shape.y);
  text += "<text x=\"" + x + "\" y=\"" + y + "\" font-size=\"" + number(shape.size) + "\"";
  if (shape.anchor != Anchor::start)
    text += shape.anchor == Anchor::middle ? " text-anchor=\"middle\"" : " text-anchor=\"end\"";
  if (shape.vertical) text += " transform=\"rotate(-90 " + x + " " + y + ")\"";
  text += " fill=\"" + hex(shape.colour) + "\">" + markup(shape.text) + "</text>\n";
}

/// Hidden: slanted lines. NaN: crosses. Both on white.
constexpr std::string_view kPatterns =
    "<defs>\n"
    "<pattern id=\"hidden\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
    "<rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
    "<path d=\"M-1 1L1 -1M0 6L6 0M5 7L7 5\" stroke=\"#c4c4c8\" stroke-width=\"1\"/></pattern>\n"
    "<pattern id=\"nan\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
    "<rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
    "<path d=\"M0 6L6 0M0 0L6 6\" stroke=\"#c02080\" stroke-width=\"0.8\"/></pattern>\n"
    "</defs>\n";

}  // namespace

std::string svg_of(const Picture& picture) {
  const std::string width = number(picture.width), height = number(picture.height);
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
      "\" viewBox=\"0 0 " + width + " " + height +
      "\" font-family=\"'DejaVu Sans', Verdana, sans-serif\" role=\"img\">\n<title>" +
      markup(picture.title) + "</title>\n";
  text += kPatterns;
  text += "<rect width=\"" + width + "\" height=\"" + height + "\" fill=\"#fff\"/>\n";
  for (const auto& shape : picture.shapes)
    std::visit([&](const auto& one) { append_svg(text, one); }, shape);
  text += "</svg>\n";
  return text;
}

}  // namespace attn
