// Paths below a folder that outputs are confined to, with and without openat2().
#include "attn/io/output_path.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

#include "support/child.h"
#include "support/run_attn.h"

using namespace attn;
namespace fs = std::filesystem;

namespace {

/// Makes openat2() fail as in kernels that lack it.
void remove_openat2() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{4, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(9);
}

/// Whether `condition` holds in a process whose outputs are confined to out/, for either way of
/// resolving paths.
bool holds_confined(const ScratchFolder& folder, const std::function<bool()>& condition) {
  fs::create_directories(folder.path() / "out/a");
  fs::create_directories(folder.path() / "others/empty");
  folder.write("others/data", "other");
  for (const char* const link : {"out/link", "out/a/link"}) {
    std::error_code exists;
    fs::create_directory_symlink(folder.path() / "others", folder.path() / link, exists);
  }
  const auto holds = [&](bool is_old_kernel) {
    fs::create_directories(folder.path() / "out/a/b");
    return holds_in_child([&] {
      fs::current_path(folder.path());
      confine_outputs("out");
      if (is_old_kernel) remove_openat2();
      return condition();
    });
  };
  return holds(false) && holds(true);
}

/// Whether the path is refused because of a link at `link`.
bool is_refused(const std::string& path, const std::string& link) {
  try {
    output_entry(path);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::cannot_create &&
           std::string(error.what()).starts_with(link + ": is a symbolic link");
  }
  return false;
}

}  // namespace

TEST_CASE("entries below the confined folder are found") {
  const ScratchFolder folder;
  CHECK(holds_confined(folder, [] {
    const OutputEntry entry = output_entry("out/a/b/c"), other = entry.beside("d");
    return entry.is_confined() && entry.name == "c" && other.name == "d" &&
           other.at() == entry.at();
  }));
  CHECK(holds_confined(folder, [] {
    const OutputEntry entry = output_entry("out/c");
    return entry.is_confined() && entry.name == "c";
  }));
}

TEST_CASE("links below the confined folder are refused and named") {
  const ScratchFolder folder;
  CHECK(holds_confined(folder, [] { return is_refused("out/link/data", "out/link"); }));
  CHECK(holds_confined(folder, [] { return is_refused("out/link/x/y", "out/link"); }));
  CHECK(holds_confined(folder, [] { return is_refused("out/a/link/data", "out/a/link"); }));
  CHECK(holds_confined(folder, [] {
    try {
      open_output("out/link", O_WRONLY);
    } catch (const Error& error) {
      return error.what() == std::string(link_error("out/link").what());
    }
    return false;
  }));
}

TEST_CASE("a missing folder below the confined one is named") {
  const ScratchFolder folder;
  CHECK(holds_confined(folder, [] {
    try {
      output_entry("out/none/x");
    } catch (const Error& error) {
      return std::string(error.what()) == "out/none/x: there is no folder out/none";
    }
    return false;
  }));
}

TEST_CASE("files and empty folders are removed, but not through links") {
  const ScratchFolder folder;
  CHECK(holds_confined(folder, [] {
    return open_output("out/a/file", O_WRONLY | O_CREAT, 0600).is_open() &&
           remove_output("out/a/file", PathKind::file) &&
           !remove_output("out/link/data", PathKind::file) &&
           !remove_output("out/link/empty", PathKind::folder);
  }));
  CHECK(holds_confined(folder, [] { return remove_output("out/a/b/", PathKind::folder); }));
  CHECK(fs::exists(folder.path() / "others/data"));
  CHECK(fs::exists(folder.path() / "others/empty"));
}

TEST_CASE("paths that do not begin with the confined folder are left alone") {
  const ScratchFolder folder;
  CHECK(holds_confined(folder, [] {
    for (const char* const path : {"outside", "./out/link/data", "out/../others/data", "out"})
      if (output_entry(path).is_confined() || output_entry(path).name != path) return false;
    return true;
  }));
}
