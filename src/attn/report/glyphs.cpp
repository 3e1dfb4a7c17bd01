#include "attn/report/glyphs.h"

#include <ft2build.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <new>
#include <string_view>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/utf8.h"
#include "attn/report/installed_fonts.h"
#include "attn/report/page.h"
#include "attn/report/picture.h"

#include FT_FREETYPE_H

namespace attn {
namespace {

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

/// Draws text from left to right.
class Pen {
 public:
  Pen(Faces& faces, double size, const std::function<void(const Glyph&)>& draw)
      : faces_(faces), size_(size), draw_(draw) {}

  void write(std::uint32_t code) {
    const FoundGlyph glyph = faces_.find(code);
    if (glyph.index == 0)
      write_code(code);
    else
      write(glyph, size_, 0);
  }

  double position() const { return static_cast<double>(at_) / 64; }

 private:
  /// `down`: pixels below the baseline.
  void write(const FoundGlyph& glyph, double size, int down) {
    const FT_Face face = glyph.face;
    require(FT_Set_Char_Size(face, 0, static_cast<FT_F26Dot6>(size * 64), 72, 72));
    FT_Vector kerning{};
    if (before_.face == face && before_.index != 0)
      FT_Get_Kerning(face, before_.index, glyph.index, FT_KERNING_UNFITTED, &kerning);
    at_ += kerning.x;
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
  }

  /// A box with the digits of the code point in two lines: 73 2B, 01F 600.
  void write_code(std::uint32_t code) {
    constexpr double kDigit = 0.42, kAdvance = 0.29, kTop = 0.84, kBottom = 0.14;  // in ems
    char digits[16];
    const bool wide = code > 0xFFFFu;
    std::snprintf(digits, sizeof digits, wide ? "%06X" : "%04X", static_cast<unsigned>(code));
    const int across = wide ? 3 : 2;
    const double width = (across * kAdvance + 0.14) * size_;
    const FT_Pos start = at_ + to_pos(0.06 * size_);
    before_ = {};
    if (draw_) {
      frame(start, width);
      for (int k = 0; k < 2 * across; ++k) {
        at_ = start + to_pos((0.07 + k % across * kAdvance) * size_);
        before_ = {};
        const double line = k < across ? -kTop / 2 - 0.01 : kBottom - 0.1;
        write({faces_.embedded(), FT_Get_Char_Index(faces_.embedded(), FT_ULong(digits[k]))},
              kDigit * size_, static_cast<int>(std::lround(line * size_)));
      }
    }
    at_ = start + to_pos(width + 0.06 * size_);
    before_ = {};
  }

  void frame(FT_Pos start, double width) {
    const int left = static_cast<int>(start >> 6), wide = std::max(2, static_cast<int>(width));
    const int top = -static_cast<int>(0.84 * size_), bottom = static_cast<int>(0.14 * size_);
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
  const std::function<void(const Glyph&)>& draw_;
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

}  // namespace

double render_text(const std::string& text, double size,
                   const std::function<void(const Glyph&)>& draw) {
  static Faces faces;
  Pen pen(faces, size, draw);
  for (std::string_view rest = text; !rest.empty();) {
    const std::uint32_t code = take_code_point(rest);
    if (!is_variation_selector(code) && !is_invisible(code)) pen.write(code);
  }
  return pen.position();
}

double text_width(const std::string& text, double size) {
  constexpr double kEm = 100;  // widths are proportional to the size
  return render_text(text, kEm, nullptr) * size / kEm;
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
