#include "attn/problem/visible_ranges.h"

#include <algorithm>

#include "attn/problem/inputs.h"
#include "attn/problem/mask.h"

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

/// Collects the queries of one matrix after the other.
class Collector {
 public:
  explicit Collector(std::size_t most) : left_(most) {}

  /// Adds the next query. Returns false if there are too many numbers.
  bool add(std::size_t query, const Ranges& keys) {
    if (query == 0) matrices.emplace_back();
    VisibleRanges::Matrix& matrix = matrices.back();
    if (query > 0 && continues(matrix.back(), query, keys)) return true;
    constexpr std::size_t kRun = 2, kRange = 4;
    const std::size_t numbers = kRun + kRange * keys.size();
    if (numbers > left_) return false;
    left_ -= numbers;
    matrix.push_back({query, keys, Ranges(keys.size(), {0, 0})});
    return true;
  }

  std::vector<VisibleRanges::Matrix> matrices;

 private:
  /// Whether the next query belongs to the run, whose steps its second query sets.
  static bool continues(VisibleRanges::Run& run, std::size_t query, const Ranges& keys) {
    if (query > run.begin + 1) return run.keys_of(query) == keys;
    auto steps = steps_between(run.keys, keys);
    if (steps) run.steps = std::move(*steps);
    return steps.has_value();
  }

  std::size_t left_;
};

Ranges ranges_of_row(const bool* visible, std::size_t S) {
  Ranges ranges;
  const auto find = [&](std::size_t from, bool value) {
    return static_cast<std::size_t>(std::find(visible + from, visible + S, value) - visible);
  };
  for (std::size_t begin = find(0, true); begin < S; begin = find(ranges.back().end, true))
    ranges.push_back({begin, find(begin, false)});
  return ranges;
}

/// One matrix for each entry of in.token_positions.
bool add_key_ranges(const Inputs& in, Collector& collector) {
  auto range = in.key_ranges->begin();
  for (std::size_t item = 0; item < in.token_positions.size(); ++item)
    for (std::size_t query = 0; query < in.rows.size(); ++query, ++range) {
      Ranges keys;
      if (range->begin < range->end)
        keys.push_back(
            {static_cast<std::size_t>(range->begin), static_cast<std::size_t>(range->end)});
      if (!collector.add(query, keys)) return false;
    }
  return true;
}

/// One matrix for each of the first two axes.
bool add_visible(const Tensor& visible, Collector& collector) {
  const Shape& shape = visible.shape();
  const bool* row = visible.data<bool>().data();
  for (std::size_t matrix = 0; matrix < shape[0] * shape[1]; ++matrix)
    for (std::size_t query = 0; query < shape[2]; ++query, row += shape[3])
      if (!collector.add(query, ranges_of_row(row, shape[3]))) return false;
  return true;
}

/// Keeps one of each `count` adjacent matrices if these are equal, in all groups of `count`.
void merge_equal(std::size_t count, std::vector<VisibleRanges::Matrix>& matrices) {
  if (count < 2) return;
  for (std::size_t i = 0; i < matrices.size(); ++i)
    if (matrices[i] != matrices[i - i % count]) return;
  for (std::size_t i = 1; i < matrices.size() / count; ++i)
    matrices[i] = std::move(matrices[i * count]);
  matrices.resize(matrices.size() / count);
}

bool uses_ranges(const Inputs& in) {
  return !in[Input::mask] && !in[Input::key_mask] && !in[Input::bias] && in.key_ranges.has_value();
}

bool is_computed(const Inputs& in) {
  constexpr std::size_t kMostElements = std::size_t{1} << 22;
  return element_count(shape_of_visible_keys(in)) <= kMostElements;
}

}  // namespace

std::optional<VisibleRanges> VisibleRanges::of(const Inputs& in, std::size_t most) {
  if (uses_ranges(in)) {
    Collector collector(most);
    if (!add_key_ranges(in, collector)) return std::nullopt;
    merge_equal(collector.matrices.size(), collector.matrices);
    return VisibleRanges(std::move(collector.matrices));
  }
  if (!is_computed(in)) return std::nullopt;
  const Tensor visible = visible_keys(in);
  const std::size_t heads = visible.shape()[1];
  const bool for_each_item = heads > 1 && visible.shape()[0] == 1;  // and the same for all
  Collector collector(for_each_item ? most / in.B : most);
  if (!add_visible(visible, collector)) return std::nullopt;
  std::vector<Matrix>& matrices = collector.matrices;
  merge_equal(heads, matrices);
  merge_equal(matrices.size(), matrices);
  if (for_each_item && matrices.size() > 1)
    for (std::size_t i = 0; i < heads * (in.B - 1); ++i) matrices.push_back(Matrix(matrices[i]));
  return VisibleRanges(std::move(matrices));
}

std::size_t VisibleRanges::bytes(const Inputs& in, std::size_t most) {
  constexpr std::size_t kNumber = 64;  // as ranges and steps of vectors that grow, and as JSON
  const std::size_t rows = in.token_positions.size() * in.rows.size();
  if (uses_ranges(in)) return std::min(2 * rows, most) * kNumber;
  if (!is_computed(in)) return 0;
  const std::size_t elements = element_count(shape_of_visible_keys(in));
  return 2 * elements + std::min(2 * elements, most) * kNumber;
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
