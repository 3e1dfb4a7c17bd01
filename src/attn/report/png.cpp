#include "attn/report/png.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <string_view>

#include "attn/base/error.h"
#include "attn/report/font.h"

namespace attn {
namespace {

constexpr double kScale = 2;  // pixels per pixel of the picture

constexpr Rgb kWhite{255, 255, 255}, kHatch{196, 196, 200}, kNan{192, 32, 128};

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
    return rising || falling ? kNan : kWhite;
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
