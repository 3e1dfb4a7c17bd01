#include "attn/report/svg.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>

#include "attn/base/text.h"
#include "attn/report/binary_text.h"
#include "attn/report/markup.h"
#include "attn/report/png.h"

namespace attn {
namespace {

/// With at most two digits after the point.
std::string svg_number(double value) {
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
  return " x=\"" + svg_number(box.x) + "\" y=\"" + svg_number(box.y) + "\" width=\"" +
         svg_number(box.width) + "\" height=\"" + svg_number(box.height) + "\"";
}

void append_svg(std::string& text, const BoxShape& shape) {
  text += "<rect" + attributes(shape.box) +
          (shape.outlined ? " fill=\"none\" stroke=\"" : " fill=\"") + hex(shape.colour) + "\"/>\n";
}

/// Adjacent cells of a row with the same fill.
struct Run {
  std::uint8_t fill;
  std::uint32_t first, count;
};

/// The fill attribute of a code of CellsShape.
std::string fill_of(std::uint8_t code, const Picture& picture, bool small) {
  if (code < kLevels) return hex(picture.palette[code]);
  if (code == kNanCell && small) return hex(picture.theme.nan);
  return code == kHiddenCell ? "url(#hidden)" : code == kZeroCell ? "url(#zero)" : "url(#nan)";
}

/// By fill, then from top to bottom.
std::vector<Run> runs_of(const CellsShape& shape) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < shape.rows; ++i)
    for (std::size_t j = 0; j < shape.columns; ++j) {
      const std::size_t cell = i * shape.columns + j;
      const std::uint8_t fill = shape.cells[cell];
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
void append_cells(std::string& text, const CellsShape& shape, const Picture& picture) {
  const double wide = shape.box.width / static_cast<double>(shape.columns);
  const double tall = shape.box.height / static_cast<double>(shape.rows);
  const bool small = std::min(wide, tall) < kPatternSize;
  const std::vector<Run> runs = runs_of(shape);
  text += "<g shape-rendering=\"crispEdges\">\n";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (r == 0 || runs[r].fill != runs[r - 1].fill)
      text += (r == 0 ? "<path fill=\"" : "\"/>\n<path fill=\"") +
              fill_of(runs[r].fill, picture, small) + "\" d=\"";
    const std::size_t row = runs[r].first / shape.columns, column = runs[r].first % shape.columns;
    const std::string run = svg_number(static_cast<double>(runs[r].count) * wide);
    text += "M" + svg_number(shape.box.x + static_cast<double>(column) * wide) + " " +
            svg_number(shape.box.y + static_cast<double>(row) * tall) + "h" + run + "v" +
            svg_number(tall) + "h-" + run + "z";
  }
  text += runs.empty() ? "</g>\n" : "\"/>\n</g>\n";
}

void append_svg(std::string& text, const TextShape& shape) {
  const std::string x = svg_number(shape.x), y = svg_number(shape.y);
  text += "<text x=\"" + x + "\" y=\"" + y + "\" font-size=\"" + svg_number(shape.size) + "\"";
  if (shape.anchor != Anchor::start)
    text += shape.anchor == Anchor::middle ? " text-anchor=\"middle\"" : " text-anchor=\"end\"";
  if (shape.vertical) text += " transform=\"rotate(-90 " + x + " " + y + ")\"";
  text += " fill=\"" + hex(shape.colour) + "\">" + markup(shape.text) + "</text>\n";
}

/// A PNG with a pixel per cell, above a rectangle whose pattern shows through transparent pixels.
void append_embedded(std::string& text, const CellsShape& shape, const Picture& picture) {
  for (const std::uint8_t code : {kHiddenCell, kZeroCell})
    if (std::find(shape.cells.begin(), shape.cells.end(), code) != shape.cells.end())
      text +=
          "<rect" + attributes(shape.box) + " fill=\"" + fill_of(code, picture, true) + "\"/>\n";
  const std::string png = png_of_cells(shape, picture);
  text += "<image" + attributes(shape.box) +
          " preserveAspectRatio=\"none\" image-rendering=\"pixelated\" "
          "xlink:href=\"data:image/png;base64,";
  append_base64(text, std::as_bytes(std::span(png)));
  text += "\"/>\n";
}

/// Hidden: slanted lines. Zeros: dots. NaN: crosses.
std::string patterns(const Theme& theme) {
  constexpr const char* kStart =
      "width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" height=\"6\" ";
  const std::string start = kStart + ("fill=\"" + hex(theme.ground)) + "\"/>";
  const std::string hatch = hex(theme.hatch);
  return "<defs>\n<pattern id=\"hidden\" " + start +
         "<path d=\"M-1 1L1 -1M0 6L6 0M5 7L7 5\" stroke=\"" + hatch +
         "\" stroke-width=\"1\"/></pattern>\n<pattern id=\"zero\" " + start +
         "<rect width=\"1\" height=\"1\" fill=\"" + hatch + "\"/></pattern>\n<pattern id=\"nan\" " +
         start + "<path d=\"M0 6L6 0M0 0L6 6\" stroke=\"" + hex(theme.nan) +
         "\" stroke-width=\"0.8\"/></pattern>\n</defs>\n";
}

std::size_t cells_of(const Picture& picture) {
  std::size_t count = 0;
  for (const auto& shape : picture.shapes)
    if (const auto* cells = std::get_if<CellsShape>(&shape)) count += cells->cells.size();
  return count;
}

}  // namespace

std::string svg_of(const Picture& picture, const PictureStyle& style) {
  const std::string width = svg_number(picture.width), height = svg_number(picture.height);
  const double shown = style.width.value_or(picture.width);
  const bool embeds = cells_of(picture) > kMaxVectorCells;
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
  if (embeds) text += " xmlns:xlink=\"http://www.w3.org/1999/xlink\"";
  text += " width=\"" + svg_number(shown) + "\" height=\"" +
          svg_number(shown * picture.height / picture.width) + "\" viewBox=\"0 0 " + width + " " +
          height + "\" font-family=\"'DejaVu Sans', Verdana, sans-serif\" role=\"img\">\n<title>" +
          markup(picture.title) + "</title>\n" + patterns(picture.theme) + "<rect width=\"" +
          width + "\" height=\"" + height + "\" fill=\"" + hex(picture.theme.ground) + "\"/>\n";
  for (const auto& shape : picture.shapes) {
    const auto* cells = std::get_if<CellsShape>(&shape);
    if (cells != nullptr && embeds && cells->cells.size() > 1)
      append_embedded(text, *cells, picture);
    else if (cells != nullptr)
      append_cells(text, *cells, picture);
    else if (const auto* box = std::get_if<BoxShape>(&shape))
      append_svg(text, *box);
    else
      append_svg(text, std::get<TextShape>(shape));
  }
  text += "</svg>\n";
  return text;
}

}  // namespace attn
