#include "attn/draw/drawing_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attn/draw/binary_text.h"
#include "attn/draw/heat_picture.h"
#include "attn/draw/page_elements.h"

namespace attn {
namespace {

constexpr double kFixed = 1 << 20;  // titles, the colour bar, the frame of a page
constexpr double kLabel = 256;      // a label of a row or column: text, JSON and rendered
constexpr double kPanel = 512;      // its title and frame

// In a picture: the level of a cell, and a text with its position and colour.
constexpr double kCell = 1, kText = 128;
// In an SVG: a cell as the start of a run, twice while the list grows, and as a rectangle of 40
// characters, twice while the text grows; texts likewise.
constexpr double kRun = 24, kRectangle = 80, kWrittenText = 320;
// In an SVG with embedded PNG: a cell in base 64, twice while the text grows.
constexpr double kEmbedded = 4;
// In a PDF: a cell as the start of a run, twice while the list grows, and as a rectangle of 50
// characters, twice while the text grows, and compressed; a text likewise; a cell of an image.
constexpr double kPdfRectangle = 150, kPdfText = 600, kPdfPixel = 3;
// In a PNG: a pixel on the canvas and in the file.
constexpr double kPixel = 3 + 1.5;

struct DrawnMatrices {
  double panels = 0, rows = 0, columns = 0;
  double group = 1;  ///< panels of a group: matrices of the last axis before the matrix
};

DrawnMatrices matrices_of(const Shape& shape) {
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return {};
  DrawnMatrices m{1, 1, 1, 1};
  for (const std::size_t length : shape) {
    m.panels *= m.rows;
    m.group = m.rows;
    m.rows = std::exchange(m.columns, static_cast<double>(length));
  }
  return m;
}

std::size_t with_labels(double bytes, const DrawnMatrices& m) {
  bytes += kFixed + kLabel * (m.rows + m.columns) + kPanel * m.panels;
  return static_cast<std::size_t>(std::min(bytes, 0x1p63));
}

PictureBounds bounds_of(const DrawnMatrices& m, double label) {
  const auto count = [](double number) { return static_cast<std::size_t>(number); };
  if (m.panels == 0) return {};
  return picture_bounds(count(m.panels), count(m.group), count(m.rows), count(m.columns), label);
}

/// `pixel`, `rectangle` and `text` are the bytes of a cell of an embedded image, of a cell that is
/// a shape, and of a text.
std::size_t bytes_of_shapes(const Shape& shape, double label, double pixel, double rectangle,
                            double text) {
  const DrawnMatrices m = matrices_of(shape);
  const PictureBounds bounds = bounds_of(m, label);
  const bool embeds = bounds.cells > static_cast<double>(kMaxVectorCells);
  return with_labels(
      bounds.cells * (kCell + (embeds ? pixel : kRun + rectangle)) + bounds.texts * (kText + text),
      m);
}

}  // namespace

std::size_t bytes_of_text(const Shape& shape, const TerminalStyle& style) {
  constexpr double kLetter = 3;    // "█"
  constexpr double kColours = 50;  // escape sequences of a cell
  constexpr double kCopies = 4;    // its line, the joined lines, the text while it grows
  const DrawnMatrices m = matrices_of(shape);
  const auto width = static_cast<double>(style.width);
  const double reduced = std::max(std::ceil(m.columns / width), 1.0);
  const double line =
      kLetter * width +
      (style.colours == TerminalColours::none ? 0 : kColours * std::min(m.columns, width));
  return with_labels(kCopies * m.panels * std::ceil(m.rows / reduced) * line, m);
}

std::size_t bytes_of_svg(const Shape& shape, double label) {
  return bytes_of_shapes(shape, label, kEmbedded, kRectangle, kWrittenText);
}

std::size_t bytes_of_pdf(const Shape& shape, double label) {
  return bytes_of_shapes(shape, label, kPdfPixel, kPdfRectangle, kPdfText);
}

std::size_t bytes_of_png(const Shape& shape, double label, const PictureStyle& style) {
  const DrawnMatrices m = matrices_of(shape);
  const PictureBounds bounds = bounds_of(m, label);
  const double inches = bounds.width * bounds.height / (96 * 96);
  // A picture with a given width is at most this much taller than wide.
  const double taller = bounds.width > 0 ? std::max(bounds.height / 300, 1.0) : 1;
  const double pixels = style.dpi * style.dpi *
                        (style.width ? *style.width * *style.width * taller / (96 * 96) : inches);
  return with_labels(bounds.cells * kCell + bounds.texts * kText + pixels * kPixel, m);
}

std::size_t bytes_of_page(const Shape& shape, DType dtype, std::size_t max_bytes,
                          std::size_t threads, std::size_t steps) {
  constexpr double kStepsCopies = 2;      // in base 85: the elements, and these joined
  constexpr double kOverview = 2 * 4096;  // for the overview, of each matrix
  constexpr double kChunk = 3 << 20;      // levels of 32 matrices before they are compressed
  constexpr double kCopies = 3.25;        // the page, its values, and these while they grow
  // For each thread: values, with row facts, compressed, in base 85; the last for two more
  // matrices.
  constexpr double kMatrixCopies = 4 + 2 * kBase85Characters;
  const DrawnMatrices m = matrices_of(shape);
  if (m.panels == 0) return with_labels(0, m);
  const auto count = [](double number) { return static_cast<std::size_t>(number); };
  const auto workers = static_cast<double>(page_workers(count(m.rows), count(m.columns), threads));
  const double value = static_cast<double>(std::max<std::size_t>(size_of(dtype), 4));
  const double matrix = m.rows * (16 + value * m.columns);  // with sum, entropy, least and most
  const double levels = m.rows * m.columns / 4 + std::min(m.rows * m.columns * 2, kOverview);
  const double vectors = kBase85Characters * static_cast<double>(steps);
  const double page = std::min(kBase85Characters * m.panels * (matrix + levels) + vectors,
                               static_cast<double>(max_bytes));
  const double workspace = kMatrixCopies * std::min(workers, m.panels) * (matrix + levels);
  return with_labels(kCopies * page + kStepsCopies * vectors + workspace + kChunk, m);
}

}  // namespace attn
