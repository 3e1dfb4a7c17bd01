#include <array>
#include <charconv>
#include <map>
#include <string_view>

#include "attn/report/markup.h"
#include "attn/report/picture.h"

namespace attn {
namespace {

/// At most two digits after the point: a hundredth of a pixel.
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
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "#";
  for (const std::uint8_t channel : {colour.red, colour.green, colour.blue}) {
    text += kDigits[channel >> 4];
    text += kDigits[channel & 15];
  }
  return text;
}

std::string attributes(const Box& box) {
  return " x=\"" + number(box.x) + "\" y=\"" + number(box.y) + "\" width=\"" + number(box.width) +
         "\" height=\"" + number(box.height) + "\"";
}

std::string svg(const BoxShape& shape) {
  return "<rect" + attributes(shape.box) +
         (shape.outlined ? " fill=\"none\" stroke=\"" : " fill=\"") + hex(shape.colour) + "\"/>\n";
}

/// One path a colour, so that a large matrix costs about a dozen bytes a cell; neighbours of one
/// colour in a row become one rectangle.
std::string svg(const CellsShape& shape) {
  const double wide = shape.box.width / static_cast<double>(shape.columns);
  const double tall = shape.box.height / static_cast<double>(shape.rows);
  std::map<std::string, std::string> paths;
  const auto fill = [&](std::size_t cell) {
    return shape.kinds[cell] == CellKind::hidden ? std::string("url(#hidden)")
           : shape.kinds[cell] == CellKind::nan  ? std::string("url(#nan)")
                                                 : hex(shape.colours[cell]);
  };
  for (std::size_t i = 0; i < shape.rows; ++i)
    for (std::size_t j = 0; j < shape.columns;) {
      const std::string colour = fill(i * shape.columns + j);
      const std::size_t first = j;
      while (j < shape.columns && fill(i * shape.columns + j) == colour) ++j;
      const std::string run = number(static_cast<double>(j - first) * wide);
      paths[colour] += "M" + number(shape.box.x + static_cast<double>(first) * wide) + " " +
                       number(shape.box.y + static_cast<double>(i) * tall) + "h" + run + "v" +
                       number(tall) + "h-" + run + "z";
    }
  std::string text = "<g shape-rendering=\"crispEdges\">\n";
  for (const auto& [colour, path] : paths)
    text += "<path fill=\"" + colour + "\" d=\"" + path + "\"/>\n";
  return text + "</g>\n";
}

std::string svg(const TextShape& shape) {
  const std::string x = number(shape.x), y = number(shape.y);
  std::string text =
      "<text x=\"" + x + "\" y=\"" + y + "\" font-size=\"" + number(shape.size) + "\"";
  if (shape.anchor != Anchor::start)
    text += shape.anchor == Anchor::middle ? " text-anchor=\"middle\"" : " text-anchor=\"end\"";
  if (shape.upright) text += " transform=\"rotate(-90 " + x + " " + y + ")\"";
  return text + " fill=\"" + hex(shape.colour) + "\">" + markup(shape.text) + "</text>\n";
}

/// Hidden: slanted lines. NaN: crosses. Both on white, as neither is a value.
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
    text += std::visit([](const auto& one) { return svg(one); }, shape);
  return text + "</svg>\n";
}

}  // namespace attn
