// How member 0 of a team starts the others: what it tells them, and what they check.
//
// Member 0 reads the command line and its inputs, and prepares the job. It then sends the others
// what they cannot know, and checks that they are the same program and see the same files. They
// prepare the same job from the same command line. In a batch, they get jobs (team_pool.h).
#pragma once

#include <string>
#include <vector>

#include "attn-mpi/team.h"
#include "attn/io/tensor_file.h"

namespace attn {

/// On the other members: waits for member 0, and returns its message, or "" if it dismisses them.
std::string await_start(Team& team);

/// On member 0: ends the wait of the others.
void dismiss_team(Team& team);

/// On member 0.
enum class TeamState {
  waiting,  ///< the others wait to be started or dismissed
  running,
  ended,  ///< the others have done all their work
};

/// How the other members read regular files. Pipes and devices are always read by member 0.
enum class TeamReading {
  automatic,  ///< each, or member 0 for all if a file is missing on some machine
  each,
  root,  ///< member 0 sends its bytes
};

/// The job as member 0 runs it.
struct TeamRun {
  std::vector<std::string> computed;   ///< names of all outputs
  std::vector<std::string> requested;  ///< those that the user asked for
  std::vector<std::string> by_rows;    ///< those that are written into files by row
  bool shows_progress = false;         ///< member 0 needs reports (rank_progress.h)
};

/// On member 0: starts the others. Errors, naming the host and the rank of a member: io, if it runs
/// another program or sees other files; no_input, if a file is missing there and `reading` is each.
void start_team(Team& team, TeamState& state, const TeamRun& run, const TensorFiles& files,
                TeamReading reading);

/// On the others, with the message of await_start(): checks the program and the files, and adds
/// those that member 0 sends to `files`.
TeamRun join_team(Team& team, const std::string& start, TensorFiles& files);

/// On member 0: starts the others in a batch. `options`: the digest of everything that affects all
/// results; `manifest`: the path of the manifest to resume, or "". Errors: io, if a member runs
/// another program or sees another base.
void start_batch_team(Team& team, TeamState& state, const std::string& options,
                      const std::string& manifest);

/// On the others, with the message of await_start(): checks the program and the options, and
/// returns the path.
std::string join_batch_team(Team& team, const std::string& start, const std::string& options);

/// "rank 2 on HOST"
std::string member_name(const Team& team);

}  // namespace attn
