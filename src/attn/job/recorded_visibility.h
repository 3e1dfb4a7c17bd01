// The keys that queries see, in the provenance of results: the member `visible` of made_by.
//
//   [[3, 1, 0, 1, 0, 1, 1, 2, 0, 2, 0, 0, 3, 4, 0, 0], ...]
//
// It has an array for each head of each batch item, for each batch item, or for all. In it, each
// run of queries has their count, the number of ranges of keys that each of them sees, and four
// numbers for each range of the first query: its first key, the one after its last, and by how much
// these two grow from one query to the next, 0 or 1. Here, query i of the first three sees keys 0
// to i, and the next query keys 0, 1 and 3. There is no member if every query sees every key, nor
// if it would be too large for the file, or too large to compute.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "attn/io/json_write.h"
#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/problem/visible_ranges.h"

namespace attn {

inline constexpr std::string_view kVisibleMember = "visible";

/// The member for a result; nullopt if there is none.
std::optional<Json> recorded_visibility(const Inputs& in);
/// An upper bound on the memory that this takes.
std::size_t bytes_of_visibility(const Inputs& in);

/// Removes the member unless it is that of this job, too, whose result is joined to the others.
void keep_common_visibility(const Inputs& in, Json& made_by);

/// Removes the member.
void forget_visibility(Json& made_by);
/// Whether all batch items and heads see the same keys.
bool is_same_for_all(const Json& made_by);

/// The keys that the queries of a result see, whose weights are (items, heads, L, S); nullopt if
/// it does not record them, or those of another tensor.
std::optional<VisibleRanges> visibility_in(const Json& made_by, std::size_t items,
                                           std::size_t heads, std::size_t L, std::size_t S);

}  // namespace attn
