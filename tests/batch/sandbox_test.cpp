// What a process cannot do in the sandbox, and what it still can.
#include "attn/batch/sandbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

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
