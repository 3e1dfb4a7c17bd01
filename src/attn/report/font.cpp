#include "attn/report/font.h"

#include <ft2build.h>
#include FT_FREETYPE_H

#include <memory>
#include <new>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/text_width.h"
#include "attn/base/utf8.h"
#include "attn/report/embedded.h"
#include "attn/report/picture.h"

namespace attn {
namespace {

/// Where there was no memory for its renderer, FreeType does without, and cannot render.
void require(FT_Error error) {
  if (error == FT_Err_Out_Of_Memory || error == FT_Err_Cannot_Render_Glyph) throw std::bad_alloc();
  if (error != 0) throw Error(ErrorKind::internal, "FreeType: error " + std::to_string(error));
}

/// The library and its one face, opened with the first text that is set.
struct Face {
  FT_Library library = nullptr;
  FT_Face face = nullptr;
  Face() {
    // The font is our own and sound: what fails here, a missing module, say, is for want of memory.
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

/// The code point at the start of `text`, which is then shortened by it.
FT_ULong take_code(std::string_view& text) {
  const std::size_t length = utf8_length(text, 0);
  const auto lead = static_cast<unsigned char>(text[0]);
  FT_ULong code = length == 0 ? 0xFFFD : length == 1 ? lead : lead & (0x7Fu >> length);
  for (std::size_t k = 1; k < length; ++k)
    code = code << 6 | (static_cast<unsigned char>(text[k]) & 0x3Fu);
  text.remove_prefix(length == 0 ? 1 : length);
  return code;
}

}  // namespace

double set_text(const std::string& text, double size,
                const std::function<void(const Glyph&)>& draw) {
  static Face shared;
  const FT_Face face = shared.face;
  require(FT_Set_Char_Size(face, 0, static_cast<FT_F26Dot6>(size * 64), 72, 72));
  FT_Pos pen = 0;  // in 1/64 pixels
  FT_UInt before = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const FT_UInt index = FT_Get_Char_Index(face, take_code(rest));
    FT_Vector kerning{};
    if (before != 0) FT_Get_Kerning(face, before, index, FT_KERNING_UNFITTED, &kerning);
    pen += kerning.x;
    FT_Vector shift{pen & 63, 0};
    FT_Set_Transform(face, nullptr,
                     &shift);  // letters stand where they belong, not on whole pixels
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
  constexpr double kEm = 100;  // measured once, large; widths grow with the size
  return set_text(text, kEm, nullptr) * size / kEm;
}

std::string cut_to_width(const std::string& text, double size, double width) {
  if (text_width(text, size) <= width) return text;
  std::string kept;
  for (const std::string_view character : characters_of(text)) {
    if (text_width(kept + std::string(character) + "…", size) > width) break;
    kept += character;
  }
  return kept + "…";
}

}  // namespace attn
