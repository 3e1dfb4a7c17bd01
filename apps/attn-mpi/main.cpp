// attn-mpi: attn run and attn batch on many ranks.
//
// Rank 0 reads the command line. If the work can be shared, it lets the others start; otherwise
// they end when it does. A rank that fails tells rank 0, which reports the first failure and ends
// all.

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>

#include "attn-mpi/mpi_team.h"
#include "attn-mpi/rank_executor.h"
#include "attn/cli/cli.h"
#include "attn/cli/terminal.h"
#include "attn/io/temp_files.h"

namespace {

std::atomic<bool> reported = false;  // a failure, or the end of the work
attn::MpiTeam* ranks = nullptr;
attn::RankExecutor* executor = nullptr;
std::thread watcher;   // on rank 0
std::string messages;  // collected; printed with the exit code

[[noreturn]] void end_all(const attn::Failure& failure) {
  std::fputs(failure.messages.c_str(), stderr);
  attn::remove_temp_files();
  MPI_Abort(MPI_COMM_WORLD, failure.code);
  _exit(failure.code);
}

/// On rank 0: waits until another rank fails, or `reported`.
void watch() {
  constexpr timespec kPause{0, 10000000};
  attn::Failure failure;
  while (!reported) {
    if (attn::take_failure(failure) && !reported.exchange(true)) end_all(failure);
    nanosleep(&kPause, nullptr);
  }
}

bool is_batch(std::string_view command) { return command == "batch"; }

/// Whether this command may run on several ranks.
bool is_shared_command(int argc, char** argv) {
  if (argc < 2) return true;  // prints the overview
  const std::string_view first = argv[1];
  return first == "run" || is_batch(first) || first == "help" || first.starts_with('-');
}

/// The end of the work on rank 0.
void stop_watching() {
  if (reported.exchange(true))
    for (;;) pause();  // the watcher ends all
  watcher.join();
}

/// Ends the use of MPI by a rank whose process ends with this code and must not return.
void leave_rank(int code) {
  if (ranks->rank() == 0) {
    stop_watching();
    if (executor->state() == attn::TeamState::running) end_all({code, messages});
  } else if (code != 0) {
    attn::report_failure({code, messages});
  }
  ranks->barrier();
  MPI_Finalize();
}

int run_first(int argc, char** argv) {
  if (argc < 2 || !is_batch(argv[1])) attn::collect_messages(&messages);  // a batch tells at once
  watcher = std::thread(watch);
  int code = 2;  // as for other wrong usage
  if (is_shared_command(argc, argv))
    code = attn::run_cli(argc, argv, *executor);
  else
    messages =
        "attn-mpi: expected 'run' or 'batch', found another command; 'attn' has the others\n";
  stop_watching();
  if (code != 0 && executor->state() == attn::TeamState::running) end_all({code, messages});
  std::fputs(messages.c_str(), stderr);
  if (executor->state() == attn::TeamState::waiting) attn::dismiss_team(*ranks);
  return code;
}

int run_other(int argc, char** argv) {
  if (!executor->await_start()) return 0;
  attn::collect_messages(&messages);
  const int code = attn::run_cli(argc, argv, *executor);
  if (code != 0) attn::report_failure({code, messages});
  return 0;
}

/// If all ranks are on one host, lets Open MPI start without its search for fast networks, which
/// takes 0.2 s. A value of mpirun --mca pml or of the environment remains; one in a file of MCA
/// parameters does not.
void skip_network_search() {
  const char* all = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* ranks_of_host = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (all == nullptr || ranks_of_host == nullptr) return;  // another library
  if (std::string_view(all) == ranks_of_host) setenv("OMPI_MCA_pml", "ob1", 0);
}

/// Whether mpirun has started several ranks, but of another MPI library: each of them is alone.
bool has_wrong_launcher(const attn::MpiTeam& team) {
  if (team.size() > 1) return false;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(variable); size != nullptr && std::atoi(size) > 1)
      return true;
  return false;
}

int refuse_launcher() {
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(library, &length);
  const std::string_view name(library, static_cast<std::size_t>(length));
  std::fputs(("attn: this mpirun is of another MPI library; use that of " +
              std::string(name.substr(0, name.find_first_of(",\n"))) + "\n")
                 .c_str(),
             stderr);
  MPI_Finalize();
  return 70;
}

}  // namespace

int main(int argc, char** argv) {
  skip_network_search();
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  attn::MpiTeam team;
  if (provided < MPI_THREAD_MULTIPLE) {
    if (team.rank() == 0)
      std::fputs(
          "attn: expected an MPI library that several threads can call "
          "(MPI_THREAD_MULTIPLE)\n",
          stderr);
    MPI_Finalize();
    return 70;
  }
  if (has_wrong_launcher(team)) return refuse_launcher();
  ranks = &team;
  attn::RankExecutor rank_executor(
      team, {.is_alone = false, .processes = team.ranks_of_host(), .threads = team.threads()},
      leave_rank);
  executor = &rank_executor;
  const int code = team.rank() == 0 ? run_first(argc, argv) : run_other(argc, argv);
  team.barrier();
  MPI_Finalize();
  return code;
}
