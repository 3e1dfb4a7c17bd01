// The positions of queries in the provenance of results: the member `positions` of made_by.
//
//   {"keys": 8, "runs": [[3, 0, 0, 2, 5, 4], ...]}
//
// For each batch item, or once for all, `runs` has three numbers for each run of queries: their
// count, the key at the position of the first one (those of the others follow it) and the first key
// of their document; -1 and -1 if they have no document among the keys. `keys` is the number of
// keys before the appended ones; without it, there are none of these. Results whose positions are
// those that readers assume have no member. It is null if there are too many runs for the file.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "attn/io/json_write.h"
#include "attn/problem/query_positions.h"

namespace attn {

inline constexpr std::string_view kPositionsMember = "positions";

/// The member for a result with S keys, appended ones included; nullopt if it is not needed.
std::optional<Json> recorded_positions(const QueryPositions& positions, std::size_t S);

/// The positions of the queries of weights (items, heads, L, S) of a result with this provenance,
/// or with none. Nullopt if it has too many runs, or those of another tensor.
std::optional<QueryPositions> positions_in(const Json& made_by, std::size_t items, std::size_t L,
                                           std::size_t S);

/// Makes the positions unknown: of a part of a tensor, whose rows are other queries.
void forget_positions(Json& made_by);

}  // namespace attn
