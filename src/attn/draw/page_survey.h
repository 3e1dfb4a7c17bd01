// What a page needs to know of all matrices before it stores any of them.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/draw/head_summary.h"
#include "attn/draw/page.h"
#include "attn/kernel/thread_pool.h"

namespace attn {

/// For each row the columns [first, end) that are stored. Outside of this range all cells of all
/// panels are hidden, for example above the diagonal of causal attention.
struct PageSpans {
  std::vector<std::size_t> first, end;
  std::size_t cells() const;
};

/// Spans after blocks of step x step cells are reduced to one.
PageSpans reduced(const PageSpans& spans, std::size_t step);

struct PageSurvey {
  PageSpans spans;                                  ///< of all sets
  double largest = 0;                               ///< finite magnitude, of all sets
  std::vector<std::vector<HeadSummary>> summaries;  ///< for each set and matrix
  /// Of two sets: the largest magnitude of each matrix of their difference.
  std::vector<double> differences;

  bool has_statistics() const;  ///< whether one of `summaries` has statistics
};

/// The sets have the same shape.
PageSurvey survey_of(const std::vector<PageSet>& sets, kernel::ThreadPool& pool);

/// The matrix that a page shows first. Of weights, the head of the least entropy, among those that
/// give the first key less than half of their weight if there are any. Of two sets, the matrix of
/// the largest difference.
std::size_t opening_matrix(const PageSurvey& survey);

/// a - b. A cell that is hidden in both is hidden. One that only one of them hides counts as 0 if
/// `are_weights`, and is hidden otherwise.
HeatRow row_difference(const HeatRow& a, const HeatRow& b, bool are_weights);

/// Whether both of two sets are weights.
bool are_weights(const std::vector<PageSet>& sets);

}  // namespace attn
