#include "attn/io/file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <thread>

#include "attn/io/temporaries.h"
#include "attn/tensor/error.h"
#include "support/run_attn.h"

using namespace attn;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

/// The kind of Error that `action` throws; a failure of the test when it throws none.
ErrorKind kind_of(const std::function<void()>& action, const std::string& says) {
  try {
    action();
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Contains(says));
    return error.kind();
  }
  FAIL("nothing was thrown; expected: " << says);
  return ErrorKind::internal;
}

void write_whole(const fs::path& path, const std::string& text, const OutputPolicy& policy = {}) {
  OutputFile out(path.string(), policy);
  out.write(text);
  out.commit();
}

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

}  // namespace

TEST_CASE("a file is read whole, into aligned memory, with xxh128sum's digest") {
  const ScratchFolder folder;
  std::string text(200000, 'x');
  text += std::string("\0\xFF", 2);
  const FileBytes file = read_file(folder.write("a", text).string());
  CHECK(file.text() == text);
  CHECK(reinterpret_cast<std::uintptr_t>(file.data.get()) % 64 == 0);
  // Digests as Debian's libxxhash 0.8.1 gives them.
  CHECK(read_file(folder.write("empty", "").string()).digest() ==
        "xxh128:99aa06d3014798d86001c324468d497f");
  CHECK(read_file(folder.write("abc", "abc").string()).digest() ==
        "xxh128:06b05ab6733a618578af5f94892f3950");
  CHECK(read_file(folder.write("zeros", std::string(1000000, '\0')).string()).digest() ==
        "xxh128:ef233fc372a159319d648391f361d99a");
}

TEST_CASE("what is no file is refused by name") {
  const ScratchFolder folder;
  const auto refuse = [](const std::string& path, const std::string& says) {
    CHECK(kind_of([&] { read_file(path); }, says) == ErrorKind::no_input);
  };
  refuse(folder.path() / "missing", "missing: No such file or directory");
  refuse(folder.path(), "is a directory");
  refuse("/dev/zero", "/dev/zero: is a device");
  refuse(std::string("/dev/null\0.npy", 14), "NUL");
  CHECK(read_file("/dev/null").size == 0);
  fs::create_symlink("loop", folder.path() / "loop");
  refuse(folder.path() / "loop", "Too many levels");
}

TEST_CASE("a FIFO is read to its end, and refused when nobody writes to it") {
  const ScratchFolder folder;
  const std::string path = folder.path() / "pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(kind_of([&] { read_file(path); }, "nobody writes") == ErrorKind::no_input);
  const std::string text(300000, 'y');
  std::thread writer([&] { write_whole(path, text); });
  const FileBytes file = read_file(path);
  writer.join();
  CHECK(file.text() == text);
  CHECK(fs::is_fifo(path));
}

TEST_CASE("an output appears whole on commit and leaves nothing without it") {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "out";
  {
    OutputFile out(path.string(), {});
    out.write("half");
    const std::vector<std::string> names = folder.names();
    REQUIRE(names.size() == 1);
    CHECK_THAT(names[0], Catch::Matchers::StartsWith(".attn-tmp-" + std::to_string(getpid())));
    CHECK(mode_of(folder.path() / names[0]) == 0600);
  }
  CHECK(folder.names().empty());
  std::string text;
  OutputFile out(path.string(), {});
  for (int i = 0; i < 300; ++i) {  // small pieces, then some larger than the buffer
    const std::string piece(i % 100 == 99 ? 3000000 : 1 + i, static_cast<char>('a' + i % 26));
    out.write(piece);
    text += piece;
  }
  OutputFile moved = std::move(out);
  moved.commit();
  CHECK(folder.names() == std::vector<std::string>{"out"});
  CHECK((folder.read("out") == text));
}

TEST_CASE("one of many outputs has no name until it is whole") {
  const ScratchFolder folder;
  const std::string path = (folder.path() / "out").string();
  const auto open = [&](bool force) {
    return OutputFile(path, {.force = force, .nameless = true});
  };
  {
    OutputFile out = open(false);
    out.write("half");
    out.finish();
    const std::vector<std::string> names = folder.names();
    if (!names.empty()) return;  // a file system that does not know such files: as any other output
  }
  CHECK(folder.names().empty());
  OutputFile out = open(false), late = open(false), forced = open(true);
  out.write("whole");
  out.commit();
  CHECK(folder.names() == std::vector<std::string>{"out"});
  CHECK(folder.read("out") == "whole");
  folder.write("plain", "");
  CHECK(mode_of(path) == mode_of(folder.path() / "plain"));
  late.write("late");
  CHECK(kind_of([&] { late.commit(); }, "exists already; --force") == ErrorKind::cannot_create);
  CHECK(folder.read("out") == "whole");
  forced.write("forced");
  forced.commit();
  CHECK(folder.read("out") == "forced");
  CHECK(folder.names() == std::vector<std::string>{"out", "plain"});
  fs::remove(path);
  fs::create_symlink("elsewhere", path);
  OutputFile linked = open(false);
  linked.write("linked");
  linked.commit();
  CHECK(fs::is_symlink(path));
  CHECK(folder.read("elsewhere") == "linked");
}

TEST_CASE("nothing is replaced unless asked for") {
  const ScratchFolder folder;
  const fs::path path = folder.write("out", "old");
  const auto write_new = [&] { write_whole(path, "new"); };
  CHECK(kind_of(write_new, "exists already; --force") == ErrorKind::cannot_create);
  CHECK(folder.read("out") == "old");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  write_whole(path, "new", {true, {}});
  CHECK(folder.read("out") == "new");
  CHECK(mode_of(path) == 0640);
  // A file that appears while the output is being made is not replaced either.
  OutputFile late((folder.path() / "late").string(), {});
  late.write("mine");
  folder.write("late", "theirs");
  CHECK(kind_of([&] { late.commit(); }, "exists already") == ErrorKind::cannot_create);
  CHECK(folder.read("late") == "theirs");
}

TEST_CASE("of a pipe no more is read than may be") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "0123456789", 10) == 10);
  close(ends[1]);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  CHECK(kind_of([&] { read_file(path, 9); }, "expected at most 9 bytes, found 10 or more") ==
        ErrorKind::data);
  close(ends[0]);
}

TEST_CASE("a socket or a terminal is read where it was handed to us, a device is not") {
  const auto text_of = [](int fd) {
    return std::string(read_file("/dev/fd/" + std::to_string(fd)).text());
  };
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  REQUIRE(write(ends[1], "socket", 6) == 6);
  close(ends[1]);
  CHECK(text_of(ends[0]) == "socket");
  close(ends[0]);
  const int zero = open("/dev/zero", O_RDONLY);
  CHECK(kind_of([&] { text_of(zero); }, "is a device, not a file") == ErrorKind::no_input);
  close(zero);
  const int user = posix_openpt(O_RDWR | O_NOCTTY);
  if (user < 0 || grantpt(user) != 0 || unlockpt(user) != 0) return;  // a system without terminals
  const int terminal = open(ptsname(user), O_RDWR | O_NOCTTY);
  REQUIRE(write(user, "typed\n\x04", 7) == 7);
  CHECK(text_of(terminal) == "typed\n");
  close(terminal);
  close(user);
}

TEST_CASE("a pipe that is full for a while is waited for") {
  int ends[2];
  REQUIRE(pipe2(ends, O_NONBLOCK) == 0);
  std::string text;
  std::thread reader([&] {
    fcntl(ends[0], F_SETFL, 0);
    char buffer[65536];
    for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(count));
  });
  {
    OutputFile out("/dev/fd/" + std::to_string(ends[1]), {});
    close(ends[1]);
    out.write(std::string(3000000, 'p'));
    out.commit();
  }
  reader.join();
  CHECK(text == std::string(3000000, 'p'));
  close(ends[0]);
}

TEST_CASE("nothing is skipped where bytes go straight to their place") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  OutputFile out("/dev/fd/" + std::to_string(ends[1]), {});
  CHECK(kind_of([&] { out.skip(10); }, "Illegal seek") == ErrorKind::io);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a folder that has taken an output's place meanwhile stays, and nothing beside it") {
  for (const bool nameless : {false, true}) {
    const ScratchFolder folder;
    const fs::path path = folder.path() / "out";
    OutputFile out(path, {.force = true, .nameless = nameless});
    out.write("late");
    fs::create_directory(path);
    CHECK(kind_of([&] { out.commit(); }, "Is a directory") == ErrorKind::io);
    { const OutputFile gone = std::move(out); }
    CHECK(folder.names() == std::vector<std::string>{"out"});
    CHECK(fs::is_directory(path));
  }
}

TEST_CASE("the mode of a new file is the umask's") {
  // In a process of its own: the mask is read once.
  const ScratchFolder folder;
  const fs::path out = folder.path() / "out.npy";
  const std::string command = "umask 027; '" + std::string(ATTN_BINARY) +
                              "' random rand --seed 1 -o '" + out.string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(mode_of(out) == 0640);
}

TEST_CASE("an output is never an input, under whatever name") {
  const ScratchFolder folder;
  const fs::path input = folder.write("in", "input");
  fs::create_symlink("in", folder.path() / "link");
  fs::create_hard_link(input, folder.path() / "hard");
  for (const char* name : {"in", "link", "hard", "./in"}) {
    const auto overwrite = [&] {
      write_whole(folder.path() / name, "x", {true, {input.string()}});
    };
    CHECK(kind_of(overwrite, "is an input") == ErrorKind::cannot_create);
  }
  CHECK(folder.read("in") == "input");
}

TEST_CASE("symbolic links stay and what they name is written") {
  const ScratchFolder folder;
  fs::create_directory(folder.path() / "sub");
  fs::create_symlink("sub/target", folder.path() / "link");
  write_whole(folder.path() / "link", "one");
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(folder.read("sub/target") == "one");
  CHECK(kind_of([&] { write_whole(folder.path() / "link", "two"); }, "exists already") ==
        ErrorKind::cannot_create);
  write_whole(folder.path() / "link", "two", {true, {}});
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(folder.read("sub/target") == "two");
}

TEST_CASE("places where no output can be are told at once") {
  const ScratchFolder folder;
  folder.write("file", "");
  fs::create_symlink("loop", folder.path() / "loop");
  const auto refuse = [&](const std::string& name, const std::string& says) {
    const std::string path = folder.path() / name;
    CHECK(kind_of([&] { OutputFile(path, {true, {}}); }, says) == ErrorKind::cannot_create);
  };
  refuse("", "is a directory");
  refuse("missing/out", "there is no folder");
  refuse("file/out", "Not a directory");
  refuse("loop", "Too many levels");
  refuse(std::string(300, 'n'), "File name too long");
}

TEST_CASE("a full disk is an error that names the file") {
  const auto fill = [] { write_whole("/dev/full", "x"); };
  CHECK(kind_of(fill, "/dev/full: No space left on device") == ErrorKind::io);
  CHECK_NOTHROW(write_whole("/dev/null", "x"));
}

TEST_CASE("a reader that has gone is BrokenPipe") {
  const auto before = signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  CHECK_THROWS_AS(write_whole("/dev/fd/" + std::to_string(ends[1]), "x"), BrokenPipe);
  close(ends[1]);
  signal(SIGPIPE, before);
}

TEST_CASE("a signal removes unfinished outputs and ends the program as ever") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const ScratchFolder folder;
    const pid_t child = fork();
    if (child == 0) {
      signal(number, SIG_DFL);
      remove_temporaries_on_signals();
      const OutputFile first((folder.path() / "a").string(), {});
      const OutputFile second((folder.path() / "b").string(), {});
      if (folder.names().size() == 2) raise(number);
      _exit(1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == number));
    CHECK(folder.names().empty());
  }
}
