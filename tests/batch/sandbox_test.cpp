// What a process cannot do in the sandbox, and what it still can.
#include "attn/batch/sandbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace attn;
namespace fs = std::filesystem;

namespace {

/// The errno with which `act` fails in a sandboxed process; 0 if it succeeds.
int errno_in_sandbox(const std::string& folder, const std::function<bool()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // the test program handles it
    enter_sandbox({folder});
    errno = 0;
    _exit(act() ? 0 : errno);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("attn-sandbox-" + std::to_string(getpid()));
  fs::path inside = path / "inside";
  Folder() { fs::create_directories(inside); }
  ~Folder() { fs::remove_all(path); }
};

/// The calls that succeed or fail for a reason of their own if all arguments are -1.
std::set<long> allowed_calls(bool writes) {
  std::set<long> calls = {SYS_read,
                          SYS_write,
                          SYS_pread64,
                          SYS_pwrite64,
                          SYS_readv,
                          SYS_writev,
                          SYS_preadv,
                          SYS_pwritev,
                          SYS_lseek,
                          SYS_close,
                          SYS_getdents64,
                          SYS_ppoll,
                          SYS_pipe2,
                          SYS_fstat,
                          SYS_newfstatat,
                          SYS_statx,
                          SYS_statfs,
                          SYS_fstatfs,
                          SYS_readlinkat,
                          SYS_faccessat,
                          SYS_faccessat2,
                          SYS_getcwd,
                          SYS_openat2,
                          SYS_brk,
                          SYS_mmap,
                          SYS_munmap,
                          SYS_mremap,
                          SYS_mprotect,
                          SYS_madvise,
                          SYS_mincore,
                          SYS_msync,
                          SYS_futex,
                          SYS_set_robust_list,
                          SYS_set_tid_address,
                          SYS_rseq,
                          SYS_sched_yield,
                          SYS_sched_getaffinity,
                          SYS_getcpu,
                          SYS_rt_sigaction,
                          SYS_rt_sigprocmask,
                          SYS_rt_sigtimedwait,
                          SYS_sigaltstack,
                          SYS_clone,
                          SYS_clock_gettime,
                          SYS_clock_getres,
                          SYS_clock_nanosleep,
                          SYS_nanosleep,
                          SYS_gettimeofday,
                          SYS_getpid,
                          SYS_getppid,
                          SYS_gettid,
                          SYS_getuid,
                          SYS_geteuid,
                          SYS_getgid,
                          SYS_getegid,
                          SYS_getrandom,
                          SYS_getrlimit,
                          SYS_getrusage,
                          SYS_sysinfo,
                          SYS_uname,
                          SYS_times};
#ifdef __x86_64__
  calls.insert({SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_poll, SYS_pipe, SYS_arch_prctl,
                SYS_time});
#endif
  if (!writes) return calls;
  calls.insert({SYS_openat, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_linkat, SYS_renameat2,
                SYS_unlinkat, SYS_mkdirat, SYS_renameat});
#ifdef __x86_64__
  calls.insert({SYS_open, SYS_link, SYS_rename, SYS_unlink, SYS_mkdir, SYS_rmdir});
#endif
  return calls;
}

bool can_create(const fs::path& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  return file >= 0 && close(file) == 0;
}

}  // namespace

TEST_CASE("a sandboxed process cannot start programs, use sockets or trace processes") {
  if (!sandbox_support().has_seccomp) return;
  const Folder folder;
  const auto result = [&](const std::function<bool()>& act) {
    return errno_in_sandbox(folder.inside, act);
  };
  CHECK(result([] { return execl("/bin/true", "true", nullptr) == 0; }) == EPERM);
  CHECK(result([] { return fork() >= 0; }) == EPERM);
  CHECK(result([] { return socket(AF_INET, SOCK_STREAM, 0) >= 0; }) == EPERM);
  CHECK(result([] { return socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }) == EPERM);
  CHECK(result([] { return kill(getppid(), 0) == 0; }) == EPERM);
  CHECK(result([&] { return chmod(folder.inside.c_str(), 0777) == 0; }) == EPERM);
  CHECK(result([] { return fchmod(STDIN_FILENO, 0777) == 0; }) == EPERM);
  CHECK(result([] { return fcntl(STDIN_FILENO, F_SETOWN, getppid()) == 0; }) == EPERM);
  CHECK(result([] { return fcntl(STDIN_FILENO, F_SETFL, O_ASYNC) == 0; }) == EPERM);
}

TEST_CASE("a sandboxed process can make only the system calls that are listed") {
  if (!sandbox_support().has_seccomp) return;
  // Besides those that exit, wait for a signal or return from one, which are not made here.
  const std::set<long> without_result = {SYS_exit, SYS_exit_group, SYS_rt_sigreturn,
#ifdef SYS_pause
                                         SYS_pause,
#endif
                                         SYS_restart_syscall};
  // From kFirstReserved to kFirstRecent there are no calls, or only those of the kernel's own code.
  constexpr long kFirstReserved = 335, kFirstRecent = 424, kCalls = 600;
  const Folder folder;
  for (const bool writes : {false, true}) {
    const std::set<long> expected = allowed_calls(writes);
    std::set<long> more, missing;
    for (long call = 0; call < kCalls; ++call) {
      if (without_result.contains(call) || (call >= kFirstReserved && call < kFirstRecent))
        continue;
      const pid_t child = fork();
      if (child == 0) {
        alarm(2);
        enter_sandbox(writes ? std::vector{folder.inside.string()} : std::vector<std::string>());
        errno = 0;
        syscall(call, -1L, -1L, -1L, -1L, -1L, -1L);
        _exit(errno == EPERM ? 1 : errno == ENOSYS ? 2 : 0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      const int refused = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      if (refused == 0 && !expected.contains(call)) more.insert(call);
      if (refused == 1 && expected.contains(call)) missing.insert(call);
      if (refused == 2 && call != SYS_futex) CHECK(call >= kFirstRecent);  // its operation is -1
    }
    const std::set<long> none;
    CHECK(more == none);
    CHECK(missing == none);
  }
}

TEST_CASE("a sandboxed process that writes no results opens no file for writing") {
  if (!sandbox_support().has_seccomp) return;
  const Folder folder;
  std::ofstream(folder.path / "old") << "old";
  const auto result = [](const std::function<bool()>& act) {
    const pid_t child = fork();
    if (child == 0) {
      enter_sandbox({});
      errno = 0;
      _exit(act() ? 0 : errno);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  const std::string old = folder.path / "old";
  CHECK(result([&] { return open(old.c_str(), O_RDONLY) >= 0; }) == 0);
  for (const int flags : {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_WRONLY | O_CREAT})
    CHECK(result([&] { return open(old.c_str(), flags, 0600) >= 0; }) == EPERM);
  CHECK(result([&] { return unlink(old.c_str()) == 0; }) == EPERM);
}

TEST_CASE("a sandboxed process can start threads, map memory, read files and abort") {
  const Folder folder;
  CHECK(errno_in_sandbox(folder.inside, [] {
          int seen = 0;
          std::thread([&] { seen = 1; }).join();
          return seen == 1;
        }) == 0);
  CHECK(errno_in_sandbox(folder.inside, [] {
          return mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
                 MAP_FAILED;
        }) == 0);
  CHECK(errno_in_sandbox(folder.inside, [] { return std::ifstream("/proc/self/status").good(); }) ==
        0);
#ifdef NDEBUG  // debuggers and sanitizers handle SIGABRT
  CHECK(errno_in_sandbox(folder.inside, []() -> bool { std::abort(); }) == -SIGABRT);
#endif
}

TEST_CASE("a sandboxed process changes files only in its folders") {
  if (sandbox_support().landlock == 0) return;
  const Folder folder;
  std::ofstream(folder.path / "old") << "old";
  std::ofstream(folder.inside / "ours") << "ours";
  const auto result = [&](const std::function<bool()>& act) {
    return errno_in_sandbox(folder.inside, act);
  };
  CHECK(result([&] { return can_create(folder.inside / "new"); }) == 0);
  CHECK(result([&] { return can_create(folder.path / "new"); }) == EACCES);
  CHECK(result([&] { return open((folder.path / "old").c_str(), O_WRONLY) >= 0; }) == EACCES);
  CHECK(result([&] { return unlink((folder.path / "old").c_str()) == 0; }) == EACCES);
  CHECK(result([&] { return mkdir((folder.path / "folder").c_str(), 0700) == 0; }) == EACCES);
  CHECK(result([&] { return unlink((folder.inside / "ours").c_str()) == 0; }) == 0);
}
