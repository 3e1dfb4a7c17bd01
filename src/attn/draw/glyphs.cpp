#include "attn/draw/glyphs.h"

#include <ft2build.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/utf8.h"
#include "attn/draw/installed_fonts.h"
#include "attn/draw/page.h"
#include "attn/draw/picture.h"

#include FT_FREETYPE_H
#include FT_OUTLINE_H

namespace attn {
namespace {

constexpr double kMeasuredSize = 100;  ///< pixels per em; widths are proportional to the size

/// FreeType reports a renderer that could not be allocated as "cannot render".
void require(FT_Error error) {
  if (error == FT_Err_Out_Of_Memory || error == FT_Err_Cannot_Render_Glyph) throw std::bad_alloc();
  if (error != 0) throw Error(ErrorKind::internal, "FreeType: error " + std::to_string(error));
}

/// A glyph of a face; index 0: no font has the character.
struct FoundGlyph {
  FT_Face face = nullptr;
  FT_UInt index = 0;
};

/// The faces of all characters, opened on first use.
class Faces {
 public:
  Faces() {
    // The embedded font is valid, so any failure here is lack of memory.
    const std::string_view font = embedded_font().bytes;
    const auto* const start = reinterpret_cast<const FT_Byte*>(font.data());
    if (FT_Init_FreeType(&library_) != 0 ||
        FT_New_Memory_Face(library_, start, static_cast<FT_Long>(font.size()), 0, &embedded_) != 0)
      throw std::bad_alloc();
  }
  Faces(const Faces&) = delete;
  Faces& operator=(const Faces&) = delete;
  ~Faces() { FT_Done_FreeType(library_); }

  FT_Face embedded() const { return embedded_; }

  FoundGlyph find(std::uint32_t code) {
    if (const FT_UInt index = FT_Get_Char_Index(embedded_, code)) return {embedded_, index};
    const auto known = installed_.find(code);
    return known != installed_.end() ? known->second : installed_[code] = find_installed(code);
  }

 private:
  /// Bitmap fonts, such as fonts of coloured emoji, are not used.
  FoundGlyph find_installed(std::uint32_t code) {
    const std::optional<FontFile> file = font_with(code);
    if (!file) return {};
    const auto known = files_.find(file->path);
    FT_Face face = known == files_.end() ? nullptr : known->second;
    if (face == nullptr && FT_New_Face(library_, file->path.c_str(), file->index, &face) != 0)
      return {};
    files_[file->path] = face;
    return FT_IS_SCALABLE(face) ? FoundGlyph{face, FT_Get_Char_Index(face, code)} : FoundGlyph{};
  }

  FT_Library library_ = nullptr;  // owns the faces
  FT_Face embedded_ = nullptr;
  std::map<std::uint32_t, FoundGlyph> installed_;
  std::map<std::string, FT_Face> files_;
};

/// A box with the digits of a code point in two lines, 73 2B or 01F 600, for a character that no
/// font has. Lengths are ems.
class CodeBox {
 public:
  static constexpr double kDigit = 0.42, kTop = 0.84, kBottom = 0.14, kMargin = 0.06;

  explicit CodeBox(std::uint32_t code) {
    char text[16];
    std::snprintf(text, sizeof text, code > 0xFFFFu ? "%06X" : "%04X", static_cast<unsigned>(code));
    digits_ = text;
  }

  double width() const { return across() * kAdvance + 0.14; }
  double advance() const { return width() + 2 * kMargin; }

  /// Calls f(digit, x, y) for the origin of each; y is downwards from the baseline.
  template <class F>
  void for_each_digit(const F& f) const {
    for (int k = 0; k < 2 * across(); ++k)
      f(digits_[static_cast<std::size_t>(k)], kMargin + 0.07 + k % across() * kAdvance,
        k < across() ? -kTop / 2 - 0.01 : kBottom - 0.1);
  }

 private:
  static constexpr double kAdvance = 0.29;

  int across() const { return static_cast<int>(digits_.size() / 2); }

  std::string digits_;
};

/// Draws text from left to right.
class Pen {
 public:
  Pen(Faces& faces, double size, std::function<void(const Glyph&)> draw)
      : faces_(faces), size_(size), draw_(std::move(draw)) {}

  /// Returns where the origin of the character is.
  double write(std::uint32_t code) {
    const FoundGlyph glyph = faces_.find(code);
    if (glyph.index != 0) return write(glyph, size_, 0);
    const double start = position();
    write_code(code);
    return start;
  }

  double position() const { return static_cast<double>(at_) / 64; }

 private:
  /// `down`: pixels below the baseline.
  double write(const FoundGlyph& glyph, double size, int down) {
    const FT_Face face = glyph.face;
    require(FT_Set_Char_Size(face, 0, static_cast<FT_F26Dot6>(size * 64), 72, 72));
    FT_Vector kerning{};
    if (before_.face == face && before_.index != 0)
      FT_Get_Kerning(face, before_.index, glyph.index, FT_KERNING_UNFITTED, &kerning);
    at_ += kerning.x;
    const double start = position();
    FT_Vector shift{at_ & 63, 0};
    FT_Set_Transform(face, nullptr, &shift);  // subpixel positions
    require(FT_Load_Glyph(face, glyph.index,
                          draw_ ? FT_LOAD_RENDER | FT_LOAD_NO_HINTING : FT_LOAD_NO_HINTING));
    const FT_Bitmap& bitmap = face->glyph->bitmap;
    if (draw_ && (bitmap.rows == 0 || bitmap.pixel_mode == FT_PIXEL_MODE_GRAY))
      draw_({static_cast<int>(at_ >> 6) + face->glyph->bitmap_left, down - face->glyph->bitmap_top,
             static_cast<int>(bitmap.width), static_cast<int>(bitmap.rows), bitmap.buffer});
    at_ += face->glyph->linearHoriAdvance >> 10;  // from 16.16
    before_ = glyph;
    return start;
  }

  void write_code(std::uint32_t code) {
    const CodeBox box(code);
    const FT_Pos start = at_;
    if (draw_) {
      frame(start + to_pos(CodeBox::kMargin * size_), box.width() * size_);
      box.for_each_digit([&](char digit, double x, double y) {
        at_ = start + to_pos(x * size_);
        before_ = {};
        write({faces_.embedded(), FT_Get_Char_Index(faces_.embedded(), FT_ULong(digit))},
              CodeBox::kDigit * size_, static_cast<int>(std::lround(y * size_)));
      });
    }
    at_ = start + to_pos(box.advance() * size_);
    before_ = {};
  }

  void frame(FT_Pos start, double width) {
    const int left = static_cast<int>(start >> 6), wide = std::max(2, static_cast<int>(width));
    const int top = -static_cast<int>(CodeBox::kTop * size_);
    const int bottom = static_cast<int>(CodeBox::kBottom * size_);
    const int line = std::max(1, static_cast<int>(size_ / 20));
    const std::vector<std::uint8_t> ink(
        static_cast<std::size_t>(line) * static_cast<std::size_t>(std::max(wide, bottom - top)),
        160);
    draw_({left, top, wide, line, ink.data()});
    draw_({left, bottom - line, wide, line, ink.data()});
    draw_({left, top + line, line, bottom - top - 2 * line, ink.data()});
    draw_({left + wide - line, top + line, line, bottom - top - 2 * line, ink.data()});
  }

  static FT_Pos to_pos(double pixels) { return static_cast<FT_Pos>(pixels * 64); }

  Faces& faces_;
  double size_;
  std::function<void(const Glyph&)> draw_;
  FT_Pos at_ = 0;  // in 1/64 pixels
  FoundGlyph before_;
};

/// Removes the first code point from `text`. A byte that is not UTF-8 becomes U+FFFD.
std::uint32_t take_code_point(std::string_view& text) {
  const std::size_t length = utf8_length(text, 0);
  const std::uint32_t code = length == 0 ? 0xFFFDu : code_point(text, 0);
  text.remove_prefix(length == 0 ? 1 : length);
  return code;
}

/// Variation selectors change the style of the character before them, which is not supported.
bool is_variation_selector(std::uint32_t code) { return code >= 0xFE00u && code <= 0xFE0Fu; }

std::vector<std::uint32_t> visible_code_points(std::string_view text) {
  std::vector<std::uint32_t> codes;
  while (!text.empty()) {
    const std::uint32_t code = take_code_point(text);
    if (!is_variation_selector(code) && !is_invisible(code)) codes.push_back(code);
  }
  return codes;
}

/// Collects an outline from FreeType, in thousandths of an em.
class OutlineSink {
 public:
  OutlineSink(std::vector<PathStep>& path, double scale) : path_(path), scale_(scale) {}

  static int move(const FT_Vector* to, void* sink) {
    return self(sink).add(PathStep::Kind::move, {self(sink).point(*to)});
  }
  static int line(const FT_Vector* to, void* sink) {
    return self(sink).add(PathStep::Kind::line, {self(sink).point(*to)});
  }
  /// A quadratic curve is a cubic one with control points at two thirds of the way to its own.
  static int quadratic(const FT_Vector* control, const FT_Vector* to, void* sink) {
    const Point from = self(sink).at_, c = self(sink).point(*control), end = self(sink).point(*to);
    const auto two_thirds = [&c](const Point& p) {
      return Point{p[0] + 2 * (c[0] - p[0]) / 3, p[1] + 2 * (c[1] - p[1]) / 3};
    };
    return self(sink).add(PathStep::Kind::curve, {two_thirds(from), two_thirds(end), end});
  }
  static int cubic(const FT_Vector* a, const FT_Vector* b, const FT_Vector* to, void* sink) {
    return self(sink).add(PathStep::Kind::curve,
                          {self(sink).point(*a), self(sink).point(*b), self(sink).point(*to)});
  }

 private:
  using Point = std::array<double, 2>;

  static OutlineSink& self(void* sink) { return *static_cast<OutlineSink*>(sink); }

  Point point(const FT_Vector& v) const {
    return {static_cast<double>(v.x) * scale_, static_cast<double>(v.y) * scale_};
  }

  int add(PathStep::Kind kind, std::initializer_list<Point> points) {
    PathStep step{kind};
    std::size_t i = 0;
    for (const Point& p : points) step.points[i++] = p[0], step.points[i++] = p[1], at_ = p;
    path_.push_back(step);
    return 0;
  }

  std::vector<PathStep>& path_;
  double scale_;
  Point at_{};
};

GlyphOutline outline_in_face(const FoundGlyph& glyph) {
  const FT_Face face = glyph.face;
  require(FT_Load_Glyph(face, glyph.index, FT_LOAD_NO_SCALE | FT_LOAD_IGNORE_TRANSFORM));
  const double scale = 1000.0 / face->units_per_EM;
  GlyphOutline outline{static_cast<double>(face->glyph->metrics.horiAdvance) * scale, {}};
  OutlineSink sink(outline.path, scale);
  const FT_Outline_Funcs functions{
      &OutlineSink::move, &OutlineSink::line, &OutlineSink::quadratic, &OutlineSink::cubic, 0, 0};
  require(FT_Outline_Decompose(&face->glyph->outline, &functions, &sink));
  return outline;
}

void append_rectangle(GlyphOutline& outline, double left, double bottom, double right, double top) {
  using enum PathStep::Kind;
  outline.path.insert(
      outline.path.end(),
      {{move, {left, bottom}}, {line, {right, bottom}}, {line, {right, top}}, {line, {left, top}}});
}

Faces& all_faces() {
  static Faces faces;
  return faces;
}

}  // namespace

double render_text(const std::string& text, double size,
                   const std::function<void(const Glyph&)>& draw) {
  Pen pen(all_faces(), size, draw);
  for (const std::uint32_t code : visible_code_points(text)) pen.write(code);
  return pen.position();
}

std::vector<PlacedGlyph> placed_glyphs(const std::string& text) {
  Pen pen(all_faces(), kMeasuredSize, nullptr);
  std::vector<PlacedGlyph> placed;
  for (const std::uint32_t code : visible_code_points(text))
    placed.push_back({code, pen.write(code) * 1000 / kMeasuredSize});
  return placed;
}

GlyphOutline outline_of(std::uint32_t code) {
  Faces& faces = all_faces();
  const FoundGlyph glyph = faces.find(code);
  if (glyph.index != 0) return outline_in_face(glyph);
  const CodeBox box(code);
  GlyphOutline outline{1000 * box.advance(), {}};
  // The inner rectangle runs the other way, so that it is not filled.
  constexpr double kLine = 50;
  const double left = 1000 * CodeBox::kMargin, right = left + 1000 * box.width();
  append_rectangle(outline, left, -1000 * CodeBox::kBottom, right, 1000 * CodeBox::kTop);
  append_rectangle(outline, right - kLine, kLine - 1000 * CodeBox::kBottom, left + kLine,
                   1000 * CodeBox::kTop - kLine);
  box.for_each_digit([&](char digit, double x, double y) {
    for (PathStep step : outline_in_face(faces.find(static_cast<unsigned char>(digit))).path) {
      for (std::size_t i = 0; i < step.points.size(); ++i)
        step.points[i] = CodeBox::kDigit * step.points[i] + 1000 * (i % 2 == 0 ? x : -y);
      outline.path.push_back(step);
    }
  });
  return outline;
}

double text_width(const std::string& text, double size) {
  return render_text(text, kMeasuredSize, nullptr) * size / kMeasuredSize;
}

std::string cut_to_width(const std::string& text, double size, double width) {
  if (text_width(text, size) <= width) return text;
  std::string kept;
  for (const std::string_view grapheme : graphemes_of(text)) {
    if (text_width(kept + std::string(grapheme) + "…", size) > width) break;
    kept += grapheme;
  }
  return kept + "…";
}

}  // namespace attn
