#include "attn-mpi/run_note.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "attn/base/error.h"
#include "support/child.h"
#include "support/run_attn.h"

using namespace attn;
using Names = std::vector<std::string>;

TEST_CASE("the note of a run exists while the run lasts") {
  const ScratchFolder folder;
  std::optional<RunNote> note(folder.path() / "r.npz");
  CHECK(folder.names() == Names{".attn-run-r.npz"});
  CHECK(folder.read(".attn-run-r.npz") == temp_token());
  note.reset();
  CHECK(folder.names().empty());
}

TEST_CASE("a run refuses an output that another run writes, and keeps its note") {
  const ScratchFolder folder;
  const RunNote note(folder.path() / "r.npz");
  try {
    const RunNote second(folder.path() / "r.npz");
    FAIL("there are two runs");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::busy);
  }
  CHECK(folder.names() == Names{".attn-run-r.npz"});
}

TEST_CASE("the note of a killed run lets the next one remove its temporary files") {
  const ScratchFolder folder;
  folder.write(".attn-run-r.npz", "k1ll3d");
  folder.write(".attn-tmp-12-k1ll3d-0", "");
  folder.write(".attn-tmp-13-k1ll3d.4-0", "of its rank 4");
  folder.write(".attn-tmp-12-0th3r-0", "");
  const RunNote note(folder.path() / "r.npz");
  CHECK(folder.names() == Names{".attn-run-r.npz", ".attn-tmp-12-0th3r-0"});
}

TEST_CASE("a note that cannot be written is not left behind") {
  const ScratchFolder folder;
  CHECK(holds_in_child([&] {
    const rlimit none{0, 0};
    std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    try {
      const RunNote note(folder.path() / "r.npz");
    } catch (const Error& error) {
      return error.kind() == ErrorKind::io;
    }
    return false;
  }));
  CHECK(folder.names().empty());
}
