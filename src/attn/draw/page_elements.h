// The script elements with a page's data (draw/page.h).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attn/draw/page_levels.h"
#include "attn/draw/page_survey.h"
#include "attn/draw/page_values.h"
#include "attn/kernel/thread_pool.h"

namespace attn {

/// Appends the script element KIND-SET-NUMBER that contains `bytes`, compressed.
void append_data(std::string& page, const char* kind, std::size_t set, std::size_t number,
                 std::span<const std::byte> bytes);

/// How the matrices of a page are reduced for drawing.
struct PageLayout {
  double unit = 1;  ///< of strength_codes()
  BlockSize overview;
  std::vector<BlockSize> pyramid;  ///< larger than the blocks of the values
  std::size_t opening = 0;         ///< opening_matrix()
};
inline constexpr std::size_t kPageChunk = 32;  ///< matrices in an element overview-S-C

PageLayout layout_of(const std::vector<PageSet>& sets, const PageSurvey& survey,
                     const PagePrecision& precision);

struct PageElements {
  std::string overview, opening, pyramid;  ///< `opening`: pyramid and values of this matrix
  std::vector<std::string> values;         ///< of each set
  std::size_t size() const;
};

/// Empty if they have more than `max_bytes`; this is estimated from a few matrices first.
std::optional<PageElements> page_elements(const std::vector<PageSet>& sets,
                                          const PageSurvey& survey, const PageLayout& layout,
                                          const PagePrecision& precision, std::size_t max_bytes,
                                          kernel::ThreadPool& pool);

/// The number of threads that work on a page: fewer if the matrices are large, because each thread
/// keeps one of them in memory.
std::size_t page_workers(std::size_t rows, std::size_t columns, std::size_t threads);

}  // namespace attn
