#include <catch2/catch.hpp>

#include "attn/io/read_budget.h"
#include "support/run_attn.h"

using namespace attn;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// The files of an imaginary machine.
struct Machine {
  ScratchFolder folder;
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((folder.path() / path).parent_path());
    folder.write(path, text);
  }
  std::size_t limit() const { return limit_of_control_group(folder.path().string()); }
};

}  // namespace

TEST_CASE("control groups of version 2: the lowest limit of all parents") {
  const Machine machine;
  CHECK(machine.limit() == kNone);  // no limit is known
  machine.write("proc/self/cgroup", "0::/user/job\n");
  CHECK(machine.limit() == kNone);
  machine.write("sys/fs/cgroup/user/job/memory.max", "max\n");
  CHECK(machine.limit() == kNone);
  machine.write("sys/fs/cgroup/user/memory.max", "3000000\n");
  CHECK(machine.limit() == 3000000);
  machine.write("sys/fs/cgroup/user/job/memory.max", "2000000\n");
  CHECK(machine.limit() == 2000000);
  machine.write("sys/fs/cgroup/memory.max", "1000000\n");  // as seen inside a container
  CHECK(machine.limit() == 1000000);
  machine.write("sys/fs/cgroup/other/memory.max", "1\n");
  CHECK(machine.limit() == 1000000);
}

TEST_CASE("control groups of version 1: only the memory controller counts") {
  const Machine machine;
  machine.write("proc/self/cgroup", "5:cpu:/slow\n4:memory:/box/job\n0::/\n");
  machine.write("sys/fs/cgroup/memory/slow/memory.limit_in_bytes", "1\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(machine.limit() == 9223372036854771712u);
  machine.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "5000000\n");
  CHECK(machine.limit() == 5000000);
  machine.write("sys/fs/cgroup/memory/box/job/memory.limit_in_bytes", "6000000\n");
  CHECK(machine.limit() == 5000000);
}
