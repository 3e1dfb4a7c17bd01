#include "attn/core/visible_ranges.h"

#include <algorithm>

#include "attn/core/inputs.h"
#include "attn/core/mask.h"

namespace attn {
namespace {

using Ranges = std::vector<VisibleRanges::Range>;

/// What the second query of a run adds to the keys of the first; nullopt if it begins a new run.
std::optional<Ranges> steps_between(const Ranges& first, const Ranges& second) {
  if (first.size() != second.size()) return std::nullopt;
  Ranges steps;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::size_t begin = second[i].begin - first[i].begin, end = second[i].end - first[i].end;
    if (begin > 1 || end > 1) return std::nullopt;  // or negative
    steps.push_back({begin, end});
  }
  return steps;
}

/// Adds a query that sees `keys`.
void add_query(std::size_t query, Ranges keys, VisibleRanges::Matrix& matrix) {
  if (!matrix.empty()) {
    VisibleRanges::Run& run = matrix.back();
    if (query == run.begin + 1) {
      if (auto steps = steps_between(run.keys, keys)) {
        run.steps = std::move(*steps);
        return;
      }
    } else if (run.keys_of(query) == keys) {
      return;
    }
  }
  Ranges steps(keys.size(), {0, 0});
  matrix.push_back({query, std::move(keys), std::move(steps)});
}

Ranges ranges_of_row(const bool* visible, std::size_t S) {
  Ranges ranges;
  for (std::size_t begin = 0; (begin = std::find(visible + begin, visible + S, true) - visible) < S;
       begin = ranges.back().end)
    ranges.push_back({begin, static_cast<std::size_t>(
                                 std::find(visible + begin, visible + S, false) - visible)});
  return ranges;
}

/// One matrix for each entry of in.token_positions.
std::vector<VisibleRanges::Matrix> matrices_of_ranges(const Inputs& in) {
  std::vector<VisibleRanges::Matrix> matrices(in.token_positions.size());
  auto range = in.key_ranges->begin();
  for (VisibleRanges::Matrix& matrix : matrices)
    for (std::size_t query = 0; query < in.rows.size(); ++query, ++range) {
      Ranges keys;
      if (range->begin < range->end)
        keys.push_back(
            {static_cast<std::size_t>(range->begin), static_cast<std::size_t>(range->end)});
      add_query(query, std::move(keys), matrix);
    }
  return matrices;
}

/// One matrix for each head of each batch item. `visible` is boolean (B, H, R, S).
std::vector<VisibleRanges::Matrix> matrices_of_mask(const Tensor& visible) {
  const Shape& shape = visible.shape();
  std::vector<VisibleRanges::Matrix> matrices(shape[0] * shape[1]);
  const bool* row = visible.data<bool>().data();
  for (VisibleRanges::Matrix& matrix : matrices)
    for (std::size_t query = 0; query < shape[2]; ++query, row += shape[3])
      add_query(query, ranges_of_row(row, shape[3]), matrix);
  return matrices;
}

/// Keeps one of each `count` adjacent matrices if these are equal, in all groups of `count`.
void merge_equal(std::size_t count, std::vector<VisibleRanges::Matrix>& matrices) {
  if (count < 2) return;
  for (std::size_t i = 0; i < matrices.size(); ++i)
    if (matrices[i] != matrices[i - i % count]) return;
  for (std::size_t i = 0; i < matrices.size() / count; ++i)
    if (i > 0) matrices[i] = std::move(matrices[i * count]);
  matrices.resize(matrices.size() / count);
}

}  // namespace

std::optional<VisibleRanges> VisibleRanges::of(const Inputs& in, const Options& options) {
  constexpr std::size_t kMostPairs = std::size_t{1} << 22;
  std::vector<Matrix> matrices;
  if (!in.mask && !in.key_mask && !in.bias && in.key_ranges) {
    matrices = matrices_of_ranges(in);
  } else {
    const std::size_t rows = in.B * in.H * in.rows.size();
    if (rows > 0 && in.S > kMostPairs / rows) return std::nullopt;
    matrices = matrices_of_mask(visible_keys(in, options));
    merge_equal(in.H, matrices);
  }
  merge_equal(matrices.size(), matrices);
  return VisibleRanges(std::move(matrices));
}

std::vector<VisibleRanges::Range> VisibleRanges::Run::keys_of(std::size_t query) const {
  std::vector<Range> seen;
  seen.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    seen.push_back({keys[i].begin + (query - begin) * steps[i].begin,
                    keys[i].end + (query - begin) * steps[i].end});
  return seen;
}

std::vector<VisibleRanges::Range> VisibleRanges::keys_of(std::size_t matrix,
                                                         std::size_t query) const {
  const Matrix& runs = matrices_[matrix];
  const auto next =
      std::upper_bound(runs.begin(), runs.end(), query,
                       [](std::size_t row, const Run& run) { return row < run.begin; });
  return std::prev(next)->keys_of(query);
}

}  // namespace attn
