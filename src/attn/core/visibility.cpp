#include "attn/core/visibility.h"

#include <algorithm>
#include <limits>
#include <map>

namespace attn {
namespace {

struct Interval {
  std::int64_t begin, end;
  bool contains(std::int64_t x) const { return begin <= x && x < end; }
};

/// The positions of the keys that causality and the window show to a query at `position`.
Interval reach(std::int64_t position, const Options& options) {
  constexpr std::int64_t kFar = std::int64_t{1} << 48;  // more than the distance of any two tokens
  Interval reach{std::numeric_limits<std::int64_t>::min(),
                 std::numeric_limits<std::int64_t>::max()};
  if (options.causal) reach.end = position + 1;
  if (options.window.right >= 0)
    reach.end = std::min(reach.end, position + std::min(options.window.right, kFar) + 1);
  if (options.window.left >= 0) reach.begin = position - std::min(options.window.left, kFar);
  return reach;
}

/// The keys of each segment, if they are contiguous and in order: a key's position is its distance
/// from the first one.
std::optional<std::map<std::int64_t, Interval>> segments_of(const TokenPositions::Side& keys) {
  std::map<std::int64_t, Interval> segments;
  Interval* latest = nullptr;
  for (std::size_t key = 0; key < keys.segment_ids.size(); ++key) {
    const std::int64_t id = keys.segment_ids[key];
    if (id == TokenPositions::kPadding) continue;
    const auto j = static_cast<std::int64_t>(key);
    if (latest == nullptr || keys.segment_ids[key - 1] != id)
      latest = &segments.try_emplace(id, Interval{j, j}).first->second;
    if (latest->end != j || keys.positions[key] != j - latest->begin) return std::nullopt;
    ++latest->end;
  }
  return segments;
}

}  // namespace

std::optional<std::vector<kernel::KeyRange>> key_ranges(const Inputs& in, const Options& options) {
  std::vector<kernel::KeyRange> ranges;
  const auto keys = static_cast<std::int64_t>(in.P + in.N);
  for (const TokenPositions& tokens : in.token_positions) {
    const auto segments = segments_of(tokens.keys);
    if (!segments) return std::nullopt;
    for (const std::size_t i : in.rows) {
      const std::int64_t id = tokens.queries.segment_ids[i];
      kernel::KeyRange range{.padding = id == TokenPositions::kPadding};
      if (const auto segment = segments->find(id); segment != segments->end()) {
        const auto& [begin, end] = segment->second;
        range.center = begin + tokens.queries.positions[i];
        const Interval reached = reach(range.center, options);
        range.begin = std::clamp(reached.begin, begin, end);
        range.end = std::max(range.begin, std::min(reached.end, end));
      }
      if (in.E > 0 && !range.padding) {  // the appended keys follow all others
        if (range.begin > 0 || range.end < keys) return std::nullopt;
        range.end = static_cast<std::int64_t>(in.S);
      }
      ranges.push_back(range);
    }
  }
  return ranges;
}

Tensor visible_by_position(const Inputs& in, const Options& options) {
  Tensor visible(DType::boolean, {in.token_positions.size(), 1, in.rows.size(), in.S});
  bool* out = visible.mutable_data<bool>().data();
  if (in.key_ranges) {
    for (const kernel::KeyRange& range : *in.key_ranges) {
      std::fill(out + range.begin, out + range.end, true);
      out += in.S;
    }
    return visible;
  }
  for (const auto& [queries, keys] : in.token_positions)
    for (const std::size_t i : in.rows) {
      const Interval reached = reach(queries.positions[i], options);
      const std::int64_t id = queries.segment_ids[i];
      for (std::size_t j = 0; j < in.S; ++j)
        *out++ = id != TokenPositions::kPadding &&
                 (j >= in.P + in.N ||
                  (id == keys.segment_ids[j] && reached.contains(keys.positions[j])));
    }
  return visible;
}

bool is_padding(const Inputs& in, std::size_t batch_row, std::size_t query) {
  const std::size_t b = in.token_positions.size() == 1 ? 0 : batch_row;
  return in.token_positions[b].queries.segment_ids[query] == TokenPositions::kPadding;
}

}  // namespace attn
