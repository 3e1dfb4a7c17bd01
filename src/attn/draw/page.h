// Heat maps as one interactive HTML page, which loads nothing from the network. Its module and its
// style are files that the build embeds in the program (cmake/page_module.cmake, cmake/embed.S.in).
//
// The data are script elements of the page, decoded by page/data.mjs. All but the first are in
// base 85: the length of a zlib stream as a 32-bit number, and the stream.
//   attn           JSON: everything but the values
//   overview-S-C   levels for the overview (draw/page_levels.h), of up to 32 matrices
//   pyramid-S-P    further levels of one matrix
//   values-S-P     the values of one matrix (draw/page_values.h)
//   steps-0-P, keyed-0-G   how weights came about (draw/page_steps.h)
// They have this order, but the pyramid and the values of the matrix that is shown first follow the
// overview: the page is usable before the browser has read all of it.
// S is 0 or 1 for a result, or 2 for their difference, first minus second, which has no values.
//
// Tokens are untrusted: the page contains them only as JSON strings and draws them as text. Its
// Content-Security-Policy allows only its own module and style, by SHA-256.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/draw/heat_map.h"
#include "attn/draw/page_steps.h"
#include "attn/tensor/tensor_place.h"

namespace attn {

struct EmbeddedFile {
  std::string_view bytes;
  std::string_view sha256;  ///< 64 hexadecimal digits
};

EmbeddedFile embedded_font();  ///< DejaVu Sans, TrueType

/// src/attn/draw/page/: the frame of the page, its style sheet, and its modules as one.
EmbeddedFile embedded_page();
EmbeddedFile embedded_style();
EmbeddedFile embedded_module();

EmbeddedFile embedded_steps_style();  ///< of worked steps (explain/worked_steps.h)

/// "'sha256-...'" for a Content-Security-Policy.
std::string hash_source(const EmbeddedFile& file);

/// One result. A page shows one, or two with their difference.
struct PageSet {
  std::string name;  ///< the file, or FILE#NAME
  HeatMap map;
  int bits = 64;  ///< 64 or 32: the narrowest float that holds its values exactly
  /// If the file contains the drawn values in the same rows and columns. A page with rounded values
  /// can then read the exact ones when its user opens the file.
  std::optional<TensorPlace> source = {};
  PositionsOfMatrices positions = {};
  bool is_weights = true;    ///< false: no sums or entropies are shown
  bool is_gradient = false;  ///< the page opens at the element of largest magnitude
  /// How the weights came about, if they are the only set. They are stored if they fit with the
  /// values.
  std::optional<WeightSteps> steps = {};
  std::string no_steps = {};  ///< the reason shown to the user; "": no page has them
};

struct Page {
  std::string html;
  std::string text;  ///< "144 matrices of 512 x 512, 8 bits per value (rounded), 26.1 MB"
};

/// The page of at most `max_bytes` with the most exact values: first with fewer bits, then with
/// each block of cells stored as one value. Errors: usage, if the sets differ in shape, or no page
/// is small enough.
Page make_page(const std::vector<PageSet>& sets, std::size_t max_bytes, std::size_t threads);

}  // namespace attn
