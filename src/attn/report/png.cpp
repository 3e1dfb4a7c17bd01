#include "attn/report/png.h"

#include <ft2build.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/utf8.h"
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

namespace {

constexpr double kScale = 2;  // pixels per pixel of the picture

constexpr Rgb kWhite{255, 255, 255}, kHatch{196, 196, 200}, kNanColour{192, 32, 128};

int pixel(double length) { return static_cast<int>(std::lround(length * kScale)); }

Rgb mixed(Rgb below, Rgb above, int share) {  // of 255
  const auto mix = [&](int a, int b) {
    return static_cast<std::uint8_t>((a * (255 - share) + b * share + 127) / 255);
  };
  return {mix(below.red, above.red), mix(below.green, above.green), mix(below.blue, above.blue)};
}

/// Renders a picture to pixels.
class Canvas {
 public:
  explicit Canvas(const Picture& picture)
      : width_(pixel(picture.width)), height_(pixel(picture.height)) {
    pixels_.assign(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_), kWhite);
  }

  void draw(const BoxShape& shape) {
    const Box& box = shape.box;
    if (!shape.outlined) return fill(box, [&](int, int) { return shape.colour; });
    const double line = 1 / kScale;
    for (const Box& side : {Box{box.x, box.y, box.width, line}, Box{box.x, box.y, line, box.height},
                            Box{box.x, box.y + box.height - line, box.width, line},
                            Box{box.x + box.width - line, box.y, line, box.height}})
      fill(side, [&](int, int) { return shape.colour; });
  }

  void draw(const CellsShape& shape) {
    const double wide = shape.box.width / static_cast<double>(shape.columns);
    const double tall = shape.box.height / static_cast<double>(shape.rows);
    for (std::size_t i = 0; i < shape.rows; ++i)
      for (std::size_t j = 0; j < shape.columns; ++j) {
        const std::size_t at = i * shape.columns + j;
        const Box cell{shape.box.x + static_cast<double>(j) * wide,
                       shape.box.y + static_cast<double>(i) * tall, wide, tall};
        fill(cell,
             [&](int x, int y) { return cell_pixel(shape.kinds[at], shape.colours[at], x, y); });
      }
  }

  void draw(const TextShape& shape) {
    const double size = shape.size * kScale;
    const double share = shape.anchor == Anchor::start    ? 0
                         : shape.anchor == Anchor::middle ? 0.5
                                                          : 1;
    const int back = static_cast<int>(std::lround(share * text_width(shape.text, size)));
    const int x = pixel(shape.x), y = pixel(shape.y);
    render_text(shape.text, size, [&](const Glyph& glyph) {
      for (int row = 0; row < glyph.height; ++row)
        for (int column = 0; column < glyph.width; ++column) {
          const int along = glyph.left + column - back, down = glyph.top + row;
          const int share_of_ink = glyph.coverage[row * glyph.width + column];
          if (shape.vertical)
            blend(x + down, y - along, shape.colour, share_of_ink);
          else
            blend(x + along, y + down, shape.colour, share_of_ink);
        }
    });
  }

  std::string png() const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    png_alloc_size_t size = 0;
    std::string bytes;
    if (png_image_write_to_memory(&image, nullptr, &size, 0, pixels_.data(), 0, nullptr) != 0) {
      bytes.resize(size);
      png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr);
    }
    if (std::string_view(image.message).find("memory") != std::string_view::npos)
      throw std::bad_alloc();
    if (PNG_IMAGE_FAILED(image))
      throw Error(ErrorKind::internal, std::string("libpng: ") + image.message);
    bytes.resize(size);
    return bytes;
  }

 private:
  /// Slanted lines for hidden cells, crossed lines for NaN; continuous across cells.
  static Rgb cell_pixel(CellKind kind, Rgb colour, int x, int y) {
    constexpr int kPeriod = 12, kLine = 2;
    if (kind == CellKind::value) return colour;
    const bool rising = (x + y) % kPeriod < kLine;
    const bool falling = ((x - y) % kPeriod + kPeriod) % kPeriod < kLine;
    if (kind == CellKind::hidden) return rising ? kHatch : kWhite;
    return rising || falling ? kNanColour : kWhite;
  }

  template <class Colour>
  void fill(const Box& box, Colour colour) {
    const int right = std::min(pixel(box.x + box.width), width_);
    const int bottom = std::min(pixel(box.y + box.height), height_);
    for (int y = std::max(pixel(box.y), 0); y < bottom; ++y)
      for (int x = std::max(pixel(box.x), 0); x < right; ++x) at(x, y) = colour(x, y);
  }

  void blend(int x, int y, Rgb colour, int share) {
    if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
    at(x, y) = mixed(at(x, y), colour, share);
  }

  Rgb& at(int x, int y) {
    return pixels_[static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
                   static_cast<std::size_t>(x)];
  }

  int width_, height_;
  std::vector<Rgb> pixels_;
};

static_assert(sizeof(Rgb) == 3, "libpng reads the pixels directly");

}  // namespace

std::string png_of(const Picture& picture) {
  Canvas canvas(picture);
  for (const auto& shape : picture.shapes)
    std::visit([&](const auto& one) { canvas.draw(one); }, shape);
  return canvas.png();
}

}  // namespace attn
