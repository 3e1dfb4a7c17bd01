// Runs the items of a batch on all members of a team. Member 0 hands them out; each
// member, also member 0, runs them in a pool of threads.
#pragma once

#include <atomic>

#include "attn-mpi/team.h"
#include "attn/batch/pool.h"

namespace attn {

/// On member 0: as run_pool(), with `options.threads` workers on this member; the others have those
/// of their own options. A member gets about 20 ms of work at a time. `calls.begin` and
/// `calls.work` are called on member 0 for its own items. After a fault, the other members still
/// wait for items; the caller must end their processes. `overdue` counts threads of this member.
PoolEnd run_team_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                      Team& team, std::atomic<bool>& stop);

/// On the other members: runs items until member 0 has no more. `calls.report` and `calls.tick` are
/// not used; they must exist while overdue threads run.
PoolEnd run_items_of_team(const PoolOptions& options, const PoolCalls& calls, Team& team);

}  // namespace attn
