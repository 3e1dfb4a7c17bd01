// Cleanup of unfinished outputs. Each case runs in a child process, because it ends all outputs of
// a process.
#include "attn/io/temp_files.h"

#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/run_attn.h"

using namespace attn;
namespace fs = std::filesystem;

namespace {

bool is_ignored(int signal_number) {
  struct sigaction now {};
  return sigaction(signal_number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

TEST_CASE("files left by a run are recognised by its token, and no others are removed") {
  const ScratchFolder folder;
  const std::string token = "4x7";
  fs::create_directory(folder.path() / "sub");
  for (const char* const name :
       {".attn-tmp-12-4x7-0", "sub/.attn-tmp-12-4x7-1", ".attn-tmp-12-4x8-0", ".attn-tmp-12-14x7-0",
        "attn-tmp-12-4x7-0", "out-4x7-1"})
    folder.write(name, "");
  remove_leftovers(folder.path(), {"another", token});
  CHECK(folder.names() == std::vector<std::string>{".attn-tmp-12-14x7-0", ".attn-tmp-12-4x8-0",
                                                   "attn-tmp-12-4x7-0", "out-4x7-1", "sub"});
  CHECK(fs::is_empty(folder.path() / "sub"));
  CHECK_NOTHROW(remove_leftovers(folder.path() / "missing", {token}));
}

TEST_CASE("a signal that was ignored stays ignored") {
  CHECK(holds_in_child([] {
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    remove_temp_files_on_signals();
    return is_ignored(SIGHUP) && !is_ignored(SIGTERM) && is_ignored(SIGXFSZ);
  }));
}

TEST_CASE("files and empty folders are removed, a folder with content is not") {
  const ScratchFolder folder;
  const fs::path file = folder.write("file", "");
  for (const char* const name : {"empty", "full"}) fs::create_directory(folder.path() / name);
  folder.write("full/result", "");
  CHECK(holds_in_child([&] {
    const TempPath one(file), two(folder.path() / "empty"), three(folder.path() / "full");
    { const TempPath kept(folder.path() / "full" / "result"); }
    remove_temp_files();
    return true;
  }));
  CHECK(folder.names() == std::vector<std::string>{"full"});
  CHECK(fs::exists(folder.path() / "full" / "result"));
}

TEST_CASE("1024 names are registered, and files beyond that are kept") {
  const ScratchFolder folder;
  CHECK(holds_in_child([&] {
    const TempPath too_long(std::string(PATH_MAX, 'n'));
    std::vector<std::unique_ptr<TempPath>> names;
    for (int i = 0; i < 1030; ++i)
      names.push_back(std::make_unique<TempPath>(folder.write(std::to_string(i), "")));
    names.resize(1029);
    remove_temp_files();
    return true;
  }));
  CHECK(folder.names().size() == 6);
}

TEST_CASE("cleanup waits for an output that is being renamed") {
  CHECK(holds_in_child([] {
    std::atomic<bool> sheltered = false, named = false;
    std::thread other([&] {
      const SignalGuard shelter;
      sheltered = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      named = true;
    });
    while (!sheltered) std::this_thread::yield();
    remove_temp_files();
    const bool waited = named;
    other.join();
    return waited;
  }));
}

TEST_CASE("no output is renamed once the program is ending") {
  CHECK(holds_in_child([] {
    signal(SIGALRM, [](int) { _exit(0); });
    remove_temp_files();
    ualarm(20000, 0);
    const SignalGuard shelter;
    return false;
  }));
}
