// Sharing a job among the members of a team: by queries, by keys, or not at all.
//
// The bytes of a row of results depend on its own inputs only, and those of a matrix product also
// on the rows of the same block of kProductRows (attention/gemm.h). Members that compute whole
// blocks therefore compute the bytes that one process would. The keys of few queries are shared in
// the blocks in which the kernels merge them (kernel/attend.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "attn-mpi/team.h"
#include "attn/attention/inputs_part.h"
#include "attn/attention/plan.h"
#include "attn/problem/options.h"

namespace attn {

/// The number of queries in all ranges.
std::size_t count_of(const RowRanges& ranges);

/// Where the rows of a part belong among those of the whole. Rows are numbered over all axes up to
/// that of the queries.
class RowMap {
 public:
  /// `queries`: of the whole.
  RowMap(const RowRanges& ranges, std::size_t queries);

  /// Calls f(offset, to, count) for each run among rows [first, first + rows) of the part: its rows
  /// from first + offset on are rows [to, to + count) of the whole.
  template <class F>
  void for_each_run(std::size_t first, std::size_t rows, F&& f) const {
    for (std::size_t offset = 0; offset < rows;) {
      const std::size_t outer = (first + offset) / part_, at = (first + offset) % part_;
      const auto next = std::upper_bound(starts_.begin(), starts_.end(), at);
      const auto range = static_cast<std::size_t>(next - starts_.begin()) - 1;
      const std::size_t within = at - starts_[range];
      const std::size_t count = std::min(rows - offset, ranges_[range].count - within);
      f(offset, outer * queries_ + ranges_[range].first + within, count);
      offset += count;
    }
  }

 private:
  const RowRanges ranges_;
  std::vector<std::size_t> starts_;  ///< of each range, in the part
  std::size_t part_ = 0, queries_;
};

struct Sharing {
  enum class Kind {
    none,  ///< one member computes everything
    rows,  ///< each member computes other queries
    keys,  ///< all compute the same, except for scores, weights and context, of which each
           ///< computes other keys
  };
  Kind kind = Kind::none;
  const char* reason = nullptr;   ///< of Kind::none: "outputs", an option's key, or "few queries"
  std::vector<RowRanges> rows;    ///< of Kind::rows: of each member, ascending
  std::vector<double> work = {};  ///< of each member: approximate number of operations
};

/// Divides the work on the outputs of `plan` evenly. With Kind::rows, the members' numbers of
/// queries are also nearly equal, unless key_weights is among the outputs: a member's queries are
/// then consecutive, and in the order of the members.
Sharing share_work(const Inputs& in, const Plan& plan, std::size_t members);

/// The keys of this member, with Kind::keys.
kernel::KeyPart key_part_of(Team& team);

/// sum_over_queries() with Kind::rows: each member passes the weights of its rows. Member 0 gets
/// the sums over all rows, with the bytes that one process computes; the others get partial ones.
Tensor sum_in_turns(const Tensor& weights, Team& team);

}  // namespace attn
