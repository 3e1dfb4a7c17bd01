// Heat maps as one HTML page that explores them: it opens from disk and asks the network for
// nothing.
//
// Tokens are untrusted: they stand in the page as JSON strings only and are drawn as text. The
// page's Content-Security-Policy allows no script and no style but its own, by their SHA-256.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "attn/report/heat_map.h"
#include "attn/report/page_values.h"

namespace attn {

/// One result; two stand side by side with their difference.
struct PageSet {
  std::string name;  ///< the file, or FILE#NAME
  HeatMap map;
  int bits = 64;  ///< 64 or 32: the narrowest float that holds its values exactly
  /// The tensor's name in the file, where the file has all that is drawn, in rows and columns as
  /// drawn: a page that rounds can read exact values from it, once a reader hands it over.
  std::optional<std::string> key = {};
};

/// How the numbers go into the page.
struct PagePlan {
  int bits = 64;  ///< a value: 64 or 32, a float; 16 or 8, that many steps of its row's range
  std::size_t step = 1;      ///< blocks of step x step cells are drawn as one
  std::size_t bytes = 0;     ///< of the page, at most
  bool exact = true;         ///< every value as the file holds it
  std::string text() const;  ///< "144 matrices of 512 x 512, 8 bits a value, 49 MB"
  std::size_t matrices = 0, rows = 0, columns = 0;
  PageSpans spans;  ///< what of a row is stored
};

/// The most exact plan that stays within `most` bytes: fewer bits first, then fewer cells. Errors:
/// usage, when sets differ in shape.
PagePlan plan_page(const std::vector<PageSet>& sets, std::size_t most);

std::string page_html(const std::vector<PageSet>& sets, const PagePlan& plan);

}  // namespace attn
