// Heat maps as one interactive HTML page, which loads nothing from the network.
//
// Tokens are untrusted: the page contains them only as JSON strings and draws them as text. Its
// Content-Security-Policy allows only its own scripts and styles, by SHA-256.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "attn/report/heat_map.h"
#include "attn/report/page_values.h"

namespace attn {

/// One result. A page shows one, or two with their difference.
struct PageSet {
  std::string name;  ///< the file, or FILE#NAME
  HeatMap map;
  int bits = 64;  ///< 64 or 32: the narrowest float that holds its values exactly
  /// The tensor's name in the file, set if the file has the drawn values in the same rows and
  /// columns. A page with rounded values can then read exact ones from the file, which its user
  /// opens.
  std::optional<std::string> key = {};
};

/// How values are stored in the page.
struct PagePlan {
  int bits = 64;             ///< per value; 64 or 32: float; 16 or 8: steps of the row's range
  std::size_t step = 1;      ///< blocks of step x step cells become one
  std::size_t bytes = 0;     ///< upper bound on the size of the page
  bool exact = true;         ///< no value is rounded
  std::string text() const;  ///< "144 matrices of 512 x 512, 8 bits a value, 49 MB"
  std::size_t matrices = 0, rows = 0, columns = 0;
  PageSpans spans;  ///< stored part of each row
};

/// The most exact plan within `most` bytes: reduces bits first, then cells. Errors: usage, if the
/// sets differ in shape.
PagePlan plan_page(const std::vector<PageSet>& sets, std::size_t most);

std::string page_html(const std::vector<PageSet>& sets, const PagePlan& plan);

}  // namespace attn
