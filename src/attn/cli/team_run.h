// attn run and attn batch on a team of processes (attn-mpi): what member 0 tells the others, and
// what they check.
//
// Member 0 reads the command line and its inputs, and prepares the job. It then sends the others
// what they cannot know, and checks that they are the same program and see the same files. They
// prepare the same job from the same command line. In a batch, they get jobs (batch/team_pool.h).
#pragma once

#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/posting_team.h"
#include "attn/cli/shared_options.h"
#include "attn/io/tensor_file.h"

namespace attn {

struct TeamPlace {
  std::size_t members_of_host = 1;  ///< members on this machine, with this one
  std::size_t threads = 0;          ///< default number of threads; 0: one for each processor
  /// Call it before ending the process with this exit code while threads compute.
  void (*exit_rank)(int code) = nullptr;
};

/// Sets the team of this process. Without one, it computes alone. The team outlives all runs.
void set_team(PostingTeam* team, const TeamPlace& place);
PostingTeam* team();
/// Whether there are members to share work with.
bool has_other_members();
const TeamPlace& team_place();

/// On the other members: waits for member 0. False if it dismisses them.
bool await_start();

/// On member 0: ends the wait of the others.
void dismiss_team();

enum class TeamState {
  waiting,  ///< the others wait to be started or dismissed
  running,
  ended,  ///< the others have done all their work
};
/// On member 0.
TeamState team_state();
void set_team_state(TeamState state);

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
  bool shows_progress = false;         ///< member 0 needs reports (cli/run_progress.h)
};

/// On member 0: starts the others. Errors, naming the host and the rank of a member: io, if it runs
/// another program or sees other files; no_input, if a file is missing there and `reading` is each.
void start_team(const TeamRun& run, const TensorFiles& files, TeamReading reading);

/// On the others, after await_start(): checks the program and the files, and adds those that member
/// 0 sends to `files`.
TeamRun join_team(TensorFiles& files);

/// On member 0: starts the others in a batch. `options`: the digest of everything that affects all
/// results; `manifest`: the path of the manifest to resume, or "". Errors: io, if a member runs
/// another program or sees another base.
void start_batch_team(const std::string& options, const std::string& manifest);

/// On the others, after await_start(): checks the program and the options, and returns the path.
std::string join_batch_team(const std::string& options);

/// The limits of this process: without --max-memory, its part of those of the machine.
ReadLimits limits_of_member(const LimitArgs& args);

/// "rank 2 on HOST"
std::string member_name();

/// Returns compute(); errors name this member.
template <class Compute>
auto as_member(Compute&& compute) {
  try {
    return compute();
  } catch (const Error& error) {
    throw error.within(member_name());
  } catch (const std::bad_alloc& fault) {
    throw Error(ErrorKind::data, member_name() + ": " + message_of(fault));
  }
}

}  // namespace attn
