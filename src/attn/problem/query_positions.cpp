#include "attn/problem/query_positions.h"

#include <algorithm>
#include <map>

#include "attn/problem/inputs.h"

namespace attn {
namespace {

/// The indices of the keys of each document. Neighbours are mostly of the same document.
class KeysOfDocuments {
 public:
  explicit KeysOfDocuments(const TokenPositions::Side& side) : side_(side) {
    std::vector<std::int64_t>* keys = nullptr;
    for (std::size_t j = 0; j < side.documents.size(); ++j) {
      if (j == 0 || side.documents[j] != side.documents[j - 1]) keys = &keys_[side.documents[j]];
      keys->push_back(static_cast<std::int64_t>(j));
    }
  }

  QueryPosition of(std::int64_t document, std::int64_t position) const {
    if (side_.documents.empty()) {
      if (side_.begin >= side_.count) return {};
      const auto first = static_cast<std::int64_t>(side_.begin);
      return {first + position, first};
    }
    const auto found = keys_.find(document);
    if (found == keys_.end()) return {};
    const std::vector<std::int64_t>& keys = found->second;
    const auto last = static_cast<std::int64_t>(keys.size()) - 1;
    const std::int64_t inside = std::clamp<std::int64_t>(position, 0, last);
    return {keys[static_cast<std::size_t>(inside)] + position - inside, keys.front()};
  }

 private:
  const TokenPositions::Side& side_;
  std::map<std::int64_t, std::vector<std::int64_t>> keys_;  ///< if it has lists
};

bool continues(const QueryPositions::Run& run, std::size_t query, const QueryPosition& position) {
  const auto ahead = position.first_key < 0 ? 0 : static_cast<std::int64_t>(query - run.begin);
  return position.first_key == run.position.first_key && position.key == run.position.key + ahead;
}

std::vector<QueryPositions::Run> runs_of(const TokenPositions& tokens,
                                         const std::vector<std::size_t>& rows) {
  const KeysOfDocuments keys(tokens.keys);
  std::vector<QueryPositions::Run> runs;
  for (std::size_t query = 0; query < rows.size(); ++query) {
    const std::size_t i = rows[query];
    const QueryPosition position = keys.of(tokens.queries.document(i), tokens.queries.position(i));
    if (runs.empty() || !continues(runs.back(), query, position)) runs.push_back({query, position});
  }
  return runs;
}

/// The run of all queries that is assumed.
QueryPositions::Run assumed_run(std::size_t queries, std::size_t keys) {
  const std::size_t more = keys > queries ? keys - queries : 0;
  return {0, {static_cast<std::int64_t>(more), 0}};
}

}  // namespace

QueryPositions::QueryPositions(std::size_t queries, std::size_t keys)
    : queries_(queries), keys_(keys), items_(1) {
  if (queries > 0) items_[0].push_back(assumed_run(queries, keys));
}

bool QueryPositions::are_assumed(std::size_t keys) const {
  return keys_ == keys && items_.size() == 1 && items_[0].size() == 1 &&
         items_[0][0] == assumed_run(queries_, keys);
}

QueryPositions::QueryPositions(const Inputs& in) : queries_(in.rows.size()), keys_(in.P + in.N) {
  for (const TokenPositions& tokens : in.token_positions)
    items_.push_back(runs_of(tokens, in.rows));
  if (std::all_of(items_.begin(), items_.end(),
                  [&](const auto& runs) { return runs == items_.front(); }))
    items_.resize(1);
}

QueryPosition QueryPositions::of(std::size_t item, std::size_t query) const {
  const std::vector<Run>& runs = items_[items_.size() == 1 ? 0 : item];
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), query,
                       [](std::size_t at, const Run& run) { return at < run.begin; });
  const Run& run = *(after - 1);
  QueryPosition position = run.position;
  if (position.first_key >= 0) position.key += static_cast<std::int64_t>(query - run.begin);
  return position;
}

}  // namespace attn
