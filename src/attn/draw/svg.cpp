#include "attn/draw/svg.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>

#include "attn/base/text.h"
#include "attn/draw/binary_text.h"
#include "attn/draw/markup.h"
#include "attn/draw/png.h"

namespace attn {
namespace {

std::string hex(Rgb colour) {
  std::string text = "#";
  for (const std::uint8_t channel : {colour.red, colour.green, colour.blue})
    append_hex(text, channel);
  return text;
}

std::string attributes(const Box& box) {
  return " x=\"" + length_text(box.x) + "\" y=\"" + length_text(box.y) + "\" width=\"" +
         length_text(box.width) + "\" height=\"" + length_text(box.height) + "\"";
}

void append_svg(std::string& text, const BoxShape& shape) {
  text += "<rect" + attributes(shape.box) +
          (shape.outlined ? " fill=\"none\" stroke=\"" : " fill=\"") + hex(shape.colour) + "\"/>\n";
}

/// The fill attribute of a code of CellsShape.
std::string fill_of(std::uint8_t code, const Picture& picture, bool small) {
  if (code < kLevels) return hex(picture.palette[code]);
  if (code == kNanCell && small) return hex(picture.theme.nan);
  return code == kHiddenCell ? "url(#hidden)" : code == kZeroCell ? "url(#zero)" : "url(#nan)";
}

/// One path per colour, so that large matrices take few bytes per cell. Adjacent cells of a row
/// with the same colour become one rectangle.
void append_cells(std::string& text, const CellsShape& shape, const Picture& picture) {
  const double wide = shape.box.width / static_cast<double>(shape.columns);
  const double tall = shape.box.height / static_cast<double>(shape.rows);
  const bool small = std::min(wide, tall) < kPatternSize;
  std::vector<CellRun> runs = runs_of(shape);
  std::sort(runs.begin(), runs.end(), [](const CellRun& a, const CellRun& b) {
    return std::pair(a.code, a.first) < std::pair(b.code, b.first);
  });
  text += "<g shape-rendering=\"crispEdges\">\n";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (r == 0 || runs[r].code != runs[r - 1].code)
      text += (r == 0 ? "<path fill=\"" : "\"/>\n<path fill=\"") +
              fill_of(runs[r].code, picture, small) + "\" d=\"";
    const std::size_t row = runs[r].first / shape.columns, column = runs[r].first % shape.columns;
    const std::string run = length_text(static_cast<double>(runs[r].count) * wide);
    text += "M" + length_text(shape.box.x + static_cast<double>(column) * wide) + " " +
            length_text(shape.box.y + static_cast<double>(row) * tall) + "h" + run + "v" +
            length_text(tall) + "h-" + run + "z";
  }
  text += runs.empty() ? "</g>\n" : "\"/>\n</g>\n";
}

void append_svg(std::string& text, const TextShape& shape) {
  const std::string x = length_text(shape.x), y = length_text(shape.y);
  text += "<text x=\"" + x + "\" y=\"" + y + "\" font-size=\"" + length_text(shape.size) + "\"";
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

}  // namespace

std::string svg_of(const Picture& picture, const PictureStyle& style) {
  const std::string width = length_text(picture.width), height = length_text(picture.height);
  const double shown = style.width.value_or(picture.width);
  const bool embeds = cells_of(picture) > kMaxVectorCells;
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
  if (embeds) text += " xmlns:xlink=\"http://www.w3.org/1999/xlink\"";
  text += " width=\"" + length_text(shown) + "\" height=\"" +
          length_text(shown * picture.height / picture.width) + "\" viewBox=\"0 0 " + width + " " +
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
