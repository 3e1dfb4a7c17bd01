// What a page stores of its matrices besides their values: reduced copies for drawing, and
// statistics.
#pragma once

#include <string>
#include <vector>

#include "attn/report/page.h"

namespace attn {

struct PageOverview {
  std::string facts;     ///< JSON members, each after a comma
  std::string overview;  ///< the script elements overview-S-C
  std::string pyramid;   ///< the script elements pyramid-S-P
};

/// `largest`: the largest finite magnitude of all sets. The sets have the same shape.
PageOverview page_overview(const std::vector<PageSet>& sets, double largest);

/// Appends a script element that contains `bytes`, compressed.
void append_data(std::string& page, const std::string& id, std::span<const std::byte> bytes);

/// "values-0-12".
std::string data_id(const char* kind, std::size_t set, std::size_t number);

}  // namespace attn
