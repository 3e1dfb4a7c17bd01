// Heat maps as one interactive HTML page, which loads nothing from the network. Scripts and styles
// are files that the build embeds in the program (cmake/embed.S.in); values are in the format of
// page/values.js.
//
// Tokens are untrusted: the page contains them only as JSON strings and draws them as text. Its
// Content-Security-Policy allows only its own scripts and styles, by SHA-256.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/report/heat_map.h"

namespace attn {

struct EmbeddedFile {
  std::string_view bytes;
  std::string_view sha256;  ///< 64 hexadecimal digits
};

EmbeddedFile embedded_font();  ///< DejaVu Sans, TrueType

/// src/attn/report/page/: the frame of the HTML page, its style sheet, and its scripts in order.
EmbeddedFile embedded_page();
EmbeddedFile embedded_style();
std::span<const EmbeddedFile> embedded_scripts();

EmbeddedFile embedded_steps_style();  ///< of worked steps (report/worked_steps.h)

/// "'sha256-...'" for a Content-Security-Policy.
std::string hash_source(const EmbeddedFile& file);

/// For each row the columns [first, end) that are stored. Outside of this range all cells of all
/// panels are hidden, for example above the diagonal of causal attention.
struct PageSpans {
  std::vector<std::size_t> first, end;
  std::size_t cells() const;
};
PageSpans spans_of(const HeatMap& map);

/// The smallest spans that contain both.
PageSpans united(const PageSpans& a, const PageSpans& b);

/// Spans after blocks of step x step cells are reduced to one.
PageSpans reduced(const PageSpans& spans, std::size_t step);

/// All little-endian.
struct PageValues {
  std::vector<std::byte> cells;  ///< values of 64, 32, 16 or 8 bits; the span of each row
  std::vector<std::byte> rows;   ///< four float32 per row: sum, entropy in nats, least, greatest
};

/// 64 and 32 bits: floats, hidden cells are -inf. 16 and 8 bits: a step of the row's range, 0 for
/// the least and 2^bits - 3 for the greatest value; the two codes above mean NaN and hidden. Sums
/// and entropies (of the row divided by its sum) are NaN if a value is NaN or if `whole` is false
/// (rows were merged); entropies also if a value is negative or the sum is 0.
PageValues page_values(const HeatMap& map, const HeatPanel& panel, const PageSpans& spans, int bits,
                       bool whole);

/// One result. A page shows one, or two with their difference.
struct PageSet {
  std::string name;  ///< the file, or FILE#NAME
  HeatMap map;
  int bits = 64;  ///< 64 or 32: the narrowest float that holds its values exactly
  /// The tensor's name in the file, if the file contains the drawn values in the same rows and
  /// columns. A page with rounded values can then read the exact ones when its user opens the file.
  std::optional<std::string> key = {};
};

/// How the values are stored in a page.
struct PagePlan {
  int bits = 64;             ///< per value; 64 or 32: float; 16 or 8: steps of the row's range
  std::size_t step = 1;      ///< blocks of step x step cells become one
  std::size_t bytes = 0;     ///< upper bound on the size of the page
  bool exact = true;         ///< no value is rounded
  std::string text() const;  ///< "144 matrices of 512 x 512, 8 bits per value, 49 MB"
  std::size_t matrices = 0, rows = 0, columns = 0;
  PageSpans spans;  ///< stored part of each row
};

/// The most exact plan within `max_bytes`: reduces bits first, then cells. Errors: usage, if the
/// sets differ in shape.
PagePlan plan_page(const std::vector<PageSet>& sets, std::size_t max_bytes);

std::string page_html(const std::vector<PageSet>& sets, const PagePlan& plan);

}  // namespace attn
