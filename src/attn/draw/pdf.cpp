#include "attn/draw/pdf.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/draw/deflate.h"
#include "attn/draw/glyphs.h"

namespace attn {
namespace {

/// "1 0.5 2 re\n"
std::string operation(std::initializer_list<double> operands, const char* name) {
  std::string text;
  for (const double x : operands) text += length_text(x) + " ";
  return text + name + "\n";
}

/// Three digits after the point tell 256 values apart.
std::string colour_text(Rgb colour) {
  std::string text;
  for (const std::uint8_t channel : {colour.red, colour.green, colour.blue}) {
    const int thousandths = (channel * 1000 + 127) / 255;
    text += thousandths == 1000 ? "1 " : "." + std::to_string(1000 + thousandths).substr(1) + " ";
  }
  return text;
}

std::string rectangle(const Box& box) {
  return operation({box.x, box.y, box.width, box.height}, "re");
}

void append_utf16(std::string& hex, std::uint32_t code) {
  const auto append = [&hex](std::uint32_t unit) {
    append_hex(hex, static_cast<std::uint8_t>(unit >> 8));
    append_hex(hex, static_cast<std::uint8_t>(unit & 0xFFu));
  };
  if (code < 0x10000u) return append(code);
  append(0xD800u + ((code - 0x10000u) >> 10));
  append(0xDC00u + ((code - 0x10000u) & 0x3FFu));
}

/// The objects of a file, numbered from 1, and its table of their offsets.
class PdfFile {
 public:
  /// A number for an object that is added later.
  std::size_t reserve() {
    objects_.emplace_back();
    return objects_.size();
  }

  void set(std::size_t number, std::string object) { objects_[number - 1] = std::move(object); }

  std::size_t add(std::string object) {
    const std::size_t number = reserve();
    set(number, std::move(object));
    return number;
  }

  /// `entries`: of its dictionary, beside the length and the filter.
  std::size_t add_stream(const std::string& entries, std::string_view data) {
    const std::vector<std::byte> packed = deflated(std::as_bytes(std::span(data)));
    std::string object = "<<" + entries + " /Filter /FlateDecode /Length " +
                         std::to_string(packed.size()) + ">>\nstream\n";
    object.append(reinterpret_cast<const char*>(packed.data()), packed.size());
    return add(object + "\nendstream");
  }

  std::string text(std::size_t root, std::size_t info) const {
    std::string text = "%PDF-1.7\n%\xE2\xE3\xCF\xD3\n";  // the second line: the file is binary
    std::string table =
        "xref\n0 " + std::to_string(objects_.size() + 1) + "\n0000000000 65535 f \n";
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      const std::string offset = std::to_string(text.size());
      table += std::string(10 - offset.size(), '0') + offset + " 00000 n \n";
      text += std::to_string(i + 1) + " 0 obj\n" + objects_[i] + "\nendobj\n";
    }
    const std::string start = std::to_string(text.size());
    return text + table + "trailer\n<</Size " + std::to_string(objects_.size() + 1) + " /Root " +
           reference(root) + " /Info " + reference(info) + ">>\nstartxref\n" + start + "\n%%EOF\n";
  }

  static std::string reference(std::size_t number) { return std::to_string(number) + " 0 R"; }

 private:
  std::vector<std::string> objects_;
};

/// The characters of a document, in fonts of up to 256. FreeType's outlines are those of the PNG.
class Fonts {
 public:
  struct Place {
    std::size_t font;
    std::uint8_t byte;
    double advance;  ///< thousandths of an em
  };

  Place place_of(std::uint32_t code) {
    const auto found = places_.find(code);
    if (found != places_.end()) return found->second;
    const std::size_t index = glyphs_.size();
    glyphs_.push_back({code, outline_of(code)});
    const Place place{index / kMost, static_cast<std::uint8_t>(index % kMost),
                      glyphs_.back().outline.advance};
    return places_.emplace(code, place).first->second;
  }

  /// "/F0 3 0 R /F1 5 0 R"
  std::string add_to(PdfFile& file) const {
    std::string fonts;
    for (std::size_t first = 0; first < glyphs_.size(); first += kMost) {
      const std::span<const Entry> some =
          std::span(glyphs_).subspan(first, std::min(kMost, glyphs_.size() - first));
      fonts += "/F" + std::to_string(first / kMost) + " " +
               PdfFile::reference(add_font(file, some)) + " ";
    }
    return fonts;
  }

 private:
  static constexpr std::size_t kMost = 256;

  struct Entry {
    std::uint32_t code;
    GlyphOutline outline;
  };

  static std::size_t add_font(PdfFile& file, std::span<const Entry> glyphs) {
    std::string procedures, names, widths;
    for (std::size_t i = 0; i < glyphs.size(); ++i) {
      const std::string name = "/g" + std::to_string(i);
      procedures +=
          name + " " + PdfFile::reference(file.add_stream("", procedure(glyphs[i].outline))) + " ";
      names += name + " ";
      widths += length_text(glyphs[i].outline.advance) + " ";
    }
    const std::size_t unicode = file.add_stream("", unicode_map(glyphs));
    return file.add(
        "<</Type /Font /Subtype /Type3 /FontBBox [0 0 0 0] "
        "/FontMatrix [.001 0 0 .001 0 0] /Resources <<>> /FirstChar 0 /LastChar " +
        std::to_string(glyphs.size() - 1) + " /Widths [" + widths +
        "] /Encoding <</Type /Encoding /Differences [0 " + names + "]>> /CharProcs <<" +
        procedures + ">> /ToUnicode " + PdfFile::reference(unicode) + ">>");
  }

  /// The operators that draw a glyph: its advance and the box around it, then the filled path.
  static std::string procedure(const GlyphOutline& outline) {
    double left = 0, bottom = 0, right = 0, top = 0;
    std::string path;
    for (const PathStep& step : outline.path) {
      const bool is_curve = step.kind == PathStep::Kind::curve;
      for (std::size_t i = 0; i < (is_curve ? 6u : 2u); i += 2) {
        left = std::min(left, step.points[i]), right = std::max(right, step.points[i]);
        bottom = std::min(bottom, step.points[i + 1]), top = std::max(top, step.points[i + 1]);
        path += length_text(step.points[i]) + " " + length_text(step.points[i + 1]) + " ";
      }
      path += is_curve ? "c\n" : step.kind == PathStep::Kind::move ? "m\n" : "l\n";
    }
    return operation({outline.advance, 0, left, bottom, right, top}, "d1") +
           (path.empty() ? "" : path + "f\n");
  }

  /// Which characters the bytes of a font mean, for search and selection.
  static std::string unicode_map(std::span<const Entry> glyphs) {
    constexpr std::size_t kMostLines = 100;  // of a section
    std::string text =
        "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n"
        "/CIDSystemInfo <</Registry (Adobe) /Ordering (UCS) /Supplement 0>> def\n"
        "/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n"
        "1 begincodespacerange\n<00> <FF>\nendcodespacerange\n";
    for (std::size_t i = 0; i < glyphs.size(); ++i) {
      if (i % kMostLines == 0)
        text += std::to_string(std::min(kMostLines, glyphs.size() - i)) + " beginbfchar\n";
      text += "<";
      append_hex(text, static_cast<std::uint8_t>(i));
      text += "> <";
      append_utf16(text, glyphs[i].code);
      text += ">\n";
      if (i % kMostLines == kMostLines - 1 || i + 1 == glyphs.size()) text += "endbfchar\n";
    }
    return text + "endcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n";
  }

  std::vector<Entry> glyphs_;
  std::map<std::uint32_t, Place> places_;
};

/// The operators that draw a picture, and the objects that they use.
class Content {
 public:
  Content(const Picture& picture, PdfFile& file)
      : picture_(picture), file_(file), embeds_(cells_of(picture) > kMaxVectorCells) {}

  std::string text;

  void draw(const BoxShape& shape) {
    text += colour_text(shape.colour) + (shape.outlined ? "RG\n" : "rg\n") + rectangle(shape.box) +
            (shape.outlined ? "S\n" : "f\n");
  }

  void draw(const CellsShape& shape) {
    if (embeds_ && shape.cells.size() > 1)
      draw_image(shape);
    else
      draw_runs(shape);
  }

  void draw(const TextShape& shape) {
    const std::vector<PlacedGlyph> glyphs = placed_glyphs(shape.text);
    if (glyphs.empty()) return;
    const double share = shape.anchor == Anchor::start    ? 0
                         : shape.anchor == Anchor::middle ? 0.5
                                                          : 1;
    const double back = share * text_width(shape.text, shape.size);
    text += "BT\n" + colour_text(shape.colour) + "rg\n" +
            (shape.vertical ? operation({0, -1, -1, 0, shape.x, shape.y + back}, "Tm")
                            : operation({1, 0, 0, -1, shape.x - back, shape.y}, "Tm"));
    std::size_t font = std::string::npos;
    double at = 0;  // where the font's advances lead, in thousandths of an em
    for (const PlacedGlyph& glyph : glyphs) {
      const Fonts::Place place = fonts_.place_of(glyph.code);
      if (place.font != font) {
        if (font != std::string::npos) text += ">] TJ\n";
        font = place.font;
        text += "/F" + std::to_string(font) + " " + length_text(shape.size) + " Tf\n[<";
      }
      if (const double adjustment = at - glyph.x; std::abs(adjustment) >= 1) {
        text += "> " + length_text(adjustment) + " <";
        at = glyph.x;
      }
      append_hex(text, place.byte);
      at += place.advance;
    }
    text += ">] TJ\nET\n";
  }

  /// After the last shape: "/Font <<...>> /XObject <<...>>".
  std::string add_resources() const {
    return "/Font <<" + fonts_.add_to(file_) + ">> /XObject <<" + images_ + ">>";
  }

 private:
  /// Rectangles reach into their right and lower neighbours, which are drawn later: viewers blend
  /// the edges of adjacent ones with what is behind them.
  void draw_runs(const CellsShape& shape) {
    constexpr double kOverlap = 0.5;
    const double wide = shape.box.width / static_cast<double>(shape.columns);
    const double tall = shape.box.height / static_cast<double>(shape.rows);
    const bool small = std::min(wide, tall) < kPatternSize;
    std::map<std::uint8_t, std::string> patterned;  // the rectangles, by code
    int drawn = -1;                                 // the code whose colour is set
    for (const CellRun& run : runs_of(shape)) {
      Box box = box_of(run, shape);
      if (run.code >= kLevels && !(run.code == kNanCell && small)) {
        patterned[run.code] += rectangle(box);
        continue;
      }
      if ((run.first + run.count) % shape.columns != 0) box.width += std::min(kOverlap, wide / 2);
      if (run.first / shape.columns + 1 < shape.rows) box.height += std::min(kOverlap, tall / 2);
      if (run.code != drawn) text += colour_text(colour_of(run.code)) + "rg\n";
      drawn = run.code;
      text += rectangle(box) + "f\n";
    }
    for (const auto& [code, boxes] : patterned) draw_pattern(code, boxes, shape.box);
  }

  /// An image with a pixel per cell, above patterns that show through hidden cells and zeros.
  void draw_image(const CellsShape& shape) {
    const auto has = [&shape](std::uint8_t code) {
      return std::find(shape.cells.begin(), shape.cells.end(), code) != shape.cells.end();
    };
    // The image covers other cells, so only zeros beside hidden cells need a path of their own.
    const bool has_hidden = has(kHiddenCell);
    if (has_hidden) draw_pattern(kHiddenCell, rectangle(shape.box), shape.box);
    if (has(kZeroCell)) {
      std::string boxes = has_hidden ? "" : rectangle(shape.box);
      if (has_hidden)
        for (const CellRun& run : runs_of(shape))
          if (run.code == kZeroCell) boxes += rectangle(box_of(run, shape));
      draw_pattern(kZeroCell, boxes, shape.box);
    }
    std::string colours;
    for (std::uint8_t code = 0; code <= kNanCell; ++code) {
      // Viewers that smooth images mix hidden cells into their neighbours.
      const bool is_clear = code == kHiddenCell || code == kZeroCell;
      const Rgb colour = is_clear ? picture_.theme.ground : colour_of(code);
      for (const std::uint8_t channel : {colour.red, colour.green, colour.blue})
        append_hex(colours, channel);
    }
    const std::string_view cells(reinterpret_cast<const char*>(shape.cells.data()),
                                 shape.cells.size());
    const std::size_t image = file_.add_stream(
        "/Type /XObject /Subtype /Image /Width " + std::to_string(shape.columns) + " /Height " +
            std::to_string(shape.rows) + " /BitsPerComponent 8 /ColorSpace [/Indexed /DeviceRGB " +
            std::to_string(kNanCell) + " <" + colours + ">] /Mask [" + std::to_string(kHiddenCell) +
            " " + std::to_string(kZeroCell) + "]",
        cells);
    const std::string name = "/I" + std::to_string(image);
    images_ += name + " " + PdfFile::reference(image) + " ";
    const Box& box = shape.box;
    text += "q\n" + operation({box.width, 0, 0, -box.height, box.x, box.y + box.height}, "cm") +
            name + " Do\nQ\n";
  }

  /// Slanted lines for hidden cells, dots for zeros and crosses for NaN, in the rectangles
  /// `boxes` within `around`.
  void draw_pattern(std::uint8_t code, const std::string& boxes, const Box& around) {
    const Theme& theme = picture_.theme;
    const double right = around.x + around.width, bottom = around.y + around.height;
    text += "q\n" + boxes + "W n\n" + colour_text(theme.ground) + "rg\n" + rectangle(around) +
            "f\n" + colour_text(code == kNanCell ? theme.nan : theme.hatch) + "RG\n";
    const auto line = [&](double x, double y, double to_x, double to_y) {
      text += operation({x, y}, "m") + operation({to_x, to_y}, "l");
    };
    // Multiples of the side of a pattern from the first at `from` or after it, up to `to`.
    const auto for_each = [](double from, double to, const auto& f) {
      for (double at = std::ceil(from / kPatternSize) * kPatternSize; at <= to; at += kPatternSize)
        f(at);
    };
    if (code == kZeroCell) {
      text += "[1 " + length_text(kPatternSize - 1) + "] 0 d\n";
      const double start = std::ceil(around.x / kPatternSize) * kPatternSize;
      for_each(around.y, bottom, [&](double y) { line(start, y + 0.5, right, y + 0.5); });
    } else {
      // Along each rising line, x + y is constant, along each falling one, x - y.
      for_each(around.x + around.y, right + bottom,
               [&](double sum) { line(sum - around.y, around.y, sum - bottom, bottom); });
      if (code == kNanCell)
        for_each(around.x - bottom, right - around.y, [&](double difference) {
          line(difference + around.y, around.y, difference + bottom, bottom);
        });
    }
    text += "S\nQ\n";
  }

  static Box box_of(const CellRun& run, const CellsShape& shape) {
    const double wide = shape.box.width / static_cast<double>(shape.columns);
    const double tall = shape.box.height / static_cast<double>(shape.rows);
    const std::size_t row = run.first / shape.columns, column = run.first % shape.columns;
    return {shape.box.x + static_cast<double>(column) * wide,
            shape.box.y + static_cast<double>(row) * tall, run.count * wide, tall};
  }

  Rgb colour_of(std::uint8_t code) const {
    return code < kLevels ? picture_.palette[code] : picture_.theme.nan;
  }

  const Picture& picture_;
  PdfFile& file_;
  bool embeds_;
  Fonts fonts_;
  std::string images_;
};

/// With six digits after the point.
std::string scale_text(double scale) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), scale, std::chars_format::fixed, 6);
  return {text.data(), end.ptr};
}

/// UTF-16 with a byte order mark, as text strings outside pages have it.
std::string text_string(const std::string& text) {
  std::string hex = "<FEFF";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    append_utf16(hex, length == 0 ? 0xFFFDu : code_point(text, i));
    i += std::max<std::size_t>(length, 1);
  }
  return hex + ">";
}

}  // namespace

std::string pdf_of(const Picture& picture, const PictureStyle& style) {
  constexpr double kPoint = 72.0 / 96, kLongestSide = 14'400;  // the latter by Annex C
  const double points = kPoint * style.width.value_or(picture.width) / picture.width;
  const double unit =
      std::max(1.0, std::ceil(points * std::max(picture.width, picture.height) / kLongestSide));
  const double scale = points / unit;
  PdfFile file;
  const std::size_t catalog = file.reserve(), pages = file.reserve(), page = file.reserve();
  Content content(picture, file);
  // Pixels, y downwards.
  content.text = operation({1, 0, 0, -1, 0, scale * picture.height}, "cm") + scale_text(scale) +
                 " 0 0 " + scale_text(scale) + " 0 0 cm\n";
  content.draw(BoxShape{{0, 0, picture.width, picture.height}, picture.theme.ground});
  for (const auto& shape : picture.shapes)
    std::visit([&](const auto& one) { content.draw(one); }, shape);
  const std::size_t stream = file.add_stream("", content.text);
  file.set(catalog, "<</Type /Catalog /Pages " + PdfFile::reference(pages) +
                        " /ViewerPreferences <</DisplayDocTitle true>>>>");
  file.set(pages, "<</Type /Pages /Kids [" + PdfFile::reference(page) + "] /Count 1>>");
  file.set(page, "<</Type /Page /Parent " + PdfFile::reference(pages) + " /MediaBox [0 0 " +
                     length_text(scale * picture.width) + " " +
                     length_text(scale * picture.height) + "] /UserUnit " + length_text(unit) +
                     " /Contents " + PdfFile::reference(stream) + " /Resources <<" +
                     content.add_resources() + ">>>>");
  const std::size_t info =
      file.add("<</Title " + text_string(picture.title) + " /Producer (attn)>>");
  return file.text(catalog, info);
}

}  // namespace attn
