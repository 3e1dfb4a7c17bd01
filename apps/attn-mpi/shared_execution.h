// Computes a job on a team of processes, each of which has read the same job.
#pragma once

#include <string>

#include "attn-mpi/share.h"
#include "attn-mpi/team.h"
#include "attn/run/execution.h"

namespace attn {

/// Marks outputs that have rows for the queries and are in `offered` as streamed: with Kind::rows,
/// members write them into the output files themselves.
void stream_rows(Plan& plan, const OutputSet& offered);

/// The job of one member, without outputs that only member 0 computes.
struct MemberJob {
  Job job;
  PreparedJob prepared;
};

/// Errors: as prepare_job().
MemberJob job_of_member(const Job& job, const PreparedJob& prepared, const Sharing& sharing,
                        std::size_t member);

/// As execute(), on all members, for a job that can be shared. `request` has the whole job, planned
/// by stream_rows() with Kind::rows. Member 0 gets the result and passes the `receiver`; the others
/// write rows into its files and get nothing. The result, its files and the warnings have the
/// bytes of execute(). Errors: as execute(); io and cannot_create, if a file of member 0 cannot be
/// opened.
Execution execute_shared(const ExecutionRequest& request, const Sharing& sharing, Team& team,
                         RowReceiver* receiver);

/// The memory in which member 0 collects outputs that are not streamed, and receives a part.
std::size_t bytes_to_gather(const Plan& plan, const Sharing& sharing);

/// Lines for --dry-run: the queries, bytes of memory and operations of each member, and the balance
/// (the members' mean work divided by the largest). Members are called ranks.
std::string sharing_text(const Job& job, const PreparedJob& prepared, const Sharing& sharing,
                         std::size_t members);
/// The same as a JSON object.
std::string sharing_json(const Job& job, const PreparedJob& prepared, const Sharing& sharing,
                         std::size_t members);

}  // namespace attn
