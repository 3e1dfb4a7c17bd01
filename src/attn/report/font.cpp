#include "attn/report/font.h"

#include <ft2build.h>
#include FT_FREETYPE_H

#include <memory>
#include <new>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/graphemes.h"
#include "attn/base/utf8.h"
#include "attn/report/embedded.h"
#include "attn/report/picture.h"

namespace attn {
namespace {

/// FreeType reports a renderer that could not be allocated as "cannot render".
void require(FT_Error error) {
  if (error == FT_Err_Out_Of_Memory || error == FT_Err_Cannot_Render_Glyph) throw std::bad_alloc();
  if (error != 0) throw Error(ErrorKind::internal, "FreeType: error " + std::to_string(error));
}

/// The library and its only face, opened on first use.
struct Face {
  FT_Library library = nullptr;
  FT_Face face = nullptr;
  Face() {
    // The embedded font is valid, so any failure here is lack of memory.
    const std::string_view font = embedded_font().bytes;
    const auto* const start = reinterpret_cast<const FT_Byte*>(font.data());
    if (FT_Init_FreeType(&library) != 0 ||
        FT_New_Memory_Face(library, start, static_cast<FT_Long>(font.size()), 0, &face) != 0)
      throw std::bad_alloc();
  }
  Face(const Face&) = delete;
  Face& operator=(const Face&) = delete;
  ~Face() { FT_Done_FreeType(library); }
};

/// Removes the first code point from `text`. A byte that is not UTF-8 becomes U+FFFD.
FT_ULong take_code_point(std::string_view& text) {
  const std::size_t length = utf8_length(text, 0);
  const FT_ULong code = length == 0 ? 0xFFFD : code_point(text, 0);
  text.remove_prefix(length == 0 ? 1 : length);
  return code;
}

}  // namespace

double render_text(const std::string& text, double size,
                   const std::function<void(const Glyph&)>& draw) {
  static Face shared;
  const FT_Face face = shared.face;
  require(FT_Set_Char_Size(face, 0, static_cast<FT_F26Dot6>(size * 64), 72, 72));
  FT_Pos pen = 0;  // in 1/64 pixels
  FT_UInt before = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const FT_UInt index = FT_Get_Char_Index(face, take_code_point(rest));
    FT_Vector kerning{};
    if (before != 0) FT_Get_Kerning(face, before, index, FT_KERNING_UNFITTED, &kerning);
    pen += kerning.x;
    FT_Vector shift{pen & 63, 0};
    FT_Set_Transform(face, nullptr,
                     &shift);  // subpixel positions
    require(FT_Load_Glyph(face, index,
                          draw ? FT_LOAD_RENDER | FT_LOAD_NO_HINTING : FT_LOAD_NO_HINTING));
    if (draw) {
      const FT_Bitmap& bitmap = face->glyph->bitmap;
      draw({static_cast<int>(pen >> 6) + face->glyph->bitmap_left, -face->glyph->bitmap_top,
            static_cast<int>(bitmap.width), static_cast<int>(bitmap.rows), bitmap.buffer});
    }
    pen += face->glyph->linearHoriAdvance >> 10;  // from 16.16
    before = index;
  }
  return static_cast<double>(pen) / 64;
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
