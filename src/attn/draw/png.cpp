#include "attn/draw/png.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <string_view>

#include "attn/base/error.h"
#include "attn/draw/glyphs.h"

namespace attn {
namespace {

Rgb mixed(Rgb below, Rgb above, int share) {  // of 255
  const auto mix = [&](int a, int b) {
    return static_cast<std::uint8_t>((a * (255 - share) + b * share + 127) / 255);
  };
  return {mix(below.red, above.red), mix(below.green, above.green), mix(below.blue, above.blue)};
}

constexpr double kMillimetresPerInch = 25.4;

/// The CRC-32 of PNG chunks (ISO 3309).
std::uint32_t checksum(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1u ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

void append_big_endian(std::string& bytes, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xFFu);
}

/// The chunk that states the resolution. libpng's simplified functions cannot write it.
std::string physical_size(double dpi) {
  constexpr char kPerMetre = 1;
  std::string data = "pHYs";
  const auto density = static_cast<std::uint32_t>(std::lround(dpi * 1000 / kMillimetresPerInch));
  append_big_endian(data, density);
  append_big_endian(data, density);
  data += kPerMetre;
  std::string chunk;
  append_big_endian(chunk, static_cast<std::uint32_t>(data.size() - 4));
  chunk += data;
  append_big_endian(chunk, checksum(data));
  return chunk;
}

/// Compresses an image; `palette` is nullptr for RGB.
std::string compressed(png_image& image, const void* pixels, const void* palette) {
  png_alloc_size_t size = 0;
  std::string bytes;
  if (png_image_write_to_memory(&image, nullptr, &size, 0, pixels, 0, palette) != 0) {
    bytes.resize(size);
    png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels, 0, palette);
  }
  if (std::string_view(image.message).find("memory") != std::string_view::npos)
    throw std::bad_alloc();
  if (PNG_IMAGE_FAILED(image))
    throw Error(ErrorKind::internal, std::string("libpng: ") + image.message);
  bytes.resize(size);
  return bytes;
}

/// Renders a picture to pixels.
class Canvas {
 public:
  /// `scale`: pixels per pixel of the picture.
  Canvas(const Picture& picture, double scale)
      : picture_(picture),
        scale_(scale),
        width_(pixel(picture.width)),
        height_(pixel(picture.height)) {
    pixels_.assign(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_),
                   picture.theme.ground);
  }

  void draw(const BoxShape& shape) {
    const Box& box = shape.box;
    if (!shape.outlined) return fill(box, [&](int, int) { return shape.colour; });
    const double line = 1 / scale_;
    for (const Box& side : {Box{box.x, box.y, box.width, line}, Box{box.x, box.y, line, box.height},
                            Box{box.x, box.y + box.height - line, box.width, line},
                            Box{box.x + box.width - line, box.y, line, box.height}})
      fill(side, [&](int, int) { return shape.colour; });
  }

  void draw(const CellsShape& shape) {
    const double wide = shape.box.width / static_cast<double>(shape.columns);
    const double tall = shape.box.height / static_cast<double>(shape.rows);
    const bool small = std::min(wide, tall) < kPatternSize;
    for (std::size_t i = 0; i < shape.rows; ++i)
      for (std::size_t j = 0; j < shape.columns; ++j) {
        const std::uint8_t code = shape.cells[i * shape.columns + j];
        const Box cell{shape.box.x + static_cast<double>(j) * wide,
                       shape.box.y + static_cast<double>(i) * tall, wide, tall};
        fill(cell, [&](int x, int y) { return cell_pixel(code, small, x, y); });
      }
  }

  void draw(const TextShape& shape) {
    const double size = shape.size * scale_;
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
    return compressed(image, pixels_.data(), nullptr);
  }

 private:
  int pixel(double length) const { return static_cast<int>(std::lround(length * scale_)); }

  /// Slanted lines for hidden cells, dots for zeros, crossed lines for NaN; continuous across
  /// cells.
  Rgb cell_pixel(std::uint8_t code, bool small, int x, int y) const {
    if (code < kLevels) return picture_.palette[code];
    const Theme& theme = picture_.theme;
    const int period = std::max(pixel(kPatternSize), 3), line = std::max(pixel(1), 1);
    const bool rising = (x + y) % period < line;
    const bool falling = ((x - y) % period + period) % period < line;
    if (code == kHiddenCell) return rising ? theme.hatch : theme.ground;
    if (code == kZeroCell)
      return x % period < line && y % period < line ? theme.hatch : theme.ground;
    return small || rising || falling ? theme.nan : theme.ground;
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

  const Picture& picture_;
  double scale_;
  int width_, height_;
  std::vector<Rgb> pixels_;
};

static_assert(sizeof(Rgb) == 3, "libpng reads the pixels directly");

}  // namespace

std::string png_of(const Picture& picture, const PictureStyle& style) {
  constexpr double kCssDpi = 96;
  Canvas canvas(picture, style.dpi / kCssDpi * style.width.value_or(picture.width) / picture.width);
  for (const auto& shape : picture.shapes)
    std::visit([&](const auto& one) { canvas.draw(one); }, shape);
  constexpr std::size_t kAfterHeader = 8 + 25;  // the signature and IHDR
  return canvas.png().insert(kAfterHeader, physical_size(style.dpi));
}

std::string png_of_cells(const CellsShape& shape, const Picture& picture) {
  constexpr std::uint8_t kClearPixel = 0, kNanPixel = 1, kFirstLevel = 2;
  std::vector<std::uint8_t> palette(4, 0);  // of transparent pixels
  const auto add = [&palette](Rgb colour) {
    palette.insert(palette.end(), {colour.red, colour.green, colour.blue, 255});
  };
  add(picture.theme.nan);
  for (std::size_t level = 0; level < kLevels; level += 2) add(picture.palette[level]);
  std::vector<std::uint8_t> pixels;
  pixels.reserve(shape.cells.size());
  for (const std::uint8_t code : shape.cells)
    pixels.push_back(code < kLevels     ? static_cast<std::uint8_t>(kFirstLevel + code / 2)
                     : code == kNanCell ? kNanPixel
                                        : kClearPixel);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(shape.columns);
  image.height = static_cast<png_uint_32>(shape.rows);
  image.format = PNG_FORMAT_RGBA_COLORMAP;
  image.colormap_entries = static_cast<png_uint_32>(palette.size() / 4);
  return compressed(image, pixels.data(), palette.data());
}

}  // namespace attn
