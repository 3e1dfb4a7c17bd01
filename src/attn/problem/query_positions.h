// The keys at the positions of queries. The statistics of weights (attention/row_statistics.h,
// docs/statistics.md) refer to them, and results record them (job/recorded_positions.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace attn {

struct Inputs;

/// Where a query is among its keys.
struct QueryPosition {
  std::int64_t key = -1;        ///< index of the key at the query's position; may not exist
  std::int64_t first_key = -1;  ///< index of the first key of its document; -1: there is none
  bool operator==(const QueryPosition&) const = default;
};

/// The positions of all queries of a result.
class QueryPositions {
 public:
  /// The queries from `begin` to that of the next run: they have the same first key, and are at
  /// the keys position.key, position.key + 1, ...
  struct Run {
    std::size_t begin;
    QueryPosition position;
    bool operator==(const Run&) const = default;
  };

  /// Those that are assumed if none are recorded: the last of `queries` queries is at the last of
  /// `keys` keys or, if there are fewer keys, query i is at key i.
  QueryPositions(std::size_t queries, std::size_t keys);

  /// Those of in.rows. Query i of a document is at its key of the same number plus the offset of
  /// Alignment; keys beyond key_lengths count, and numbers continue beyond its keys. Lengths do not
  /// change the position of a padded query.
  explicit QueryPositions(const Inputs& in);

  /// Those of `queries` queries, with the runs of each batch item, or of all. The first run of each
  /// begins at 0, and the others in ascending order.
  QueryPositions(std::size_t queries, std::size_t keys, std::vector<std::vector<Run>> items)
      : queries_(queries), keys_(keys), items_(std::move(items)) {}

  QueryPosition of(std::size_t item, std::size_t query) const;

  std::size_t queries() const { return queries_; }
  std::size_t keys() const { return keys_; }  ///< without the appended ones, which are the last
  /// For each batch item, or one for all.
  const std::vector<std::vector<Run>>& items() const { return items_; }

  /// Whether these are the ones that are assumed with so many keys. There are queries.
  bool are_assumed(std::size_t keys) const;

 private:
  std::size_t queries_, keys_;
  std::vector<std::vector<Run>> items_;
};

}  // namespace attn
