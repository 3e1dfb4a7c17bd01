#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "attn/base/error.h"
#include "attn/io/staged_file.h"
#include "attn/io/temp_files.h"
#include "attn/io/used_files.h"
#include "support/error_kind.h"
#include "support/run_attn.h"

using namespace attn;
namespace fs = std::filesystem;

namespace {

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

TEST_CASE("an output appears complete on commit and leaves nothing without it") {
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
  for (int i = 0; i < 300; ++i) {  // small writes, then some larger than the buffer
    const std::string piece(i % 100 == 99 ? 3000000 : 1 + i, static_cast<char>('a' + i % 26));
    out.write(piece);
    text += piece;
  }
  OutputFile moved = std::move(out);
  moved.commit();
  CHECK(folder.names() == std::vector<std::string>{"out"});
  CHECK((folder.read("out") == text));
}

TEST_CASE("each of many outputs has no name until it is complete") {
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
    if (!names.empty()) return;  // a file system without unnamed files
  }
  CHECK(folder.names().empty());
  {
    OutputFile out = open(false);
    out.write("whole");
    out.commit();
  }
  CHECK(folder.names() == std::vector<std::string>{"out"});
  CHECK(folder.read("out") == "whole");
  folder.write("plain", "");
  CHECK(mode_of(path) == mode_of(folder.path() / "plain"));
  for (const bool force : {false, true}) {  // another program creates the file meanwhile
    fs::remove(path);
    OutputFile late = open(force);
    late.write("late");
    folder.write("out", "theirs");
    if (force)
      late.commit();
    else
      CHECK(kind_of([&] { late.commit(); }, "already exists; --force") == ErrorKind::cannot_create);
    CHECK(folder.read("out") == (force ? "late" : "theirs"));
  }
  CHECK(folder.names() == std::vector<std::string>{"out", "plain"});
  fs::remove(path);
  fs::create_symlink("elsewhere", path);
  OutputFile linked = open(false);
  linked.write("linked");
  linked.commit();
  CHECK(fs::is_symlink(path));
  CHECK(folder.read("elsewhere") == "linked");
}

TEST_CASE("existing files are replaced only on request") {
  const ScratchFolder folder;
  const fs::path path = folder.write("out", "old");
  const auto write_new = [&] { write_whole(path, "new"); };
  CHECK(kind_of(write_new, "already exists; --force") == ErrorKind::cannot_create);
  CHECK(folder.read("out") == "old");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  write_whole(path, "new", {.force = true});
  CHECK(folder.read("out") == "new");
  CHECK(mode_of(path) == 0640);
  // A file created while the output is written is not replaced either.
  OutputFile late((folder.path() / "late").string(), {});
  late.write("mine");
  folder.write("late", "theirs");
  CHECK(kind_of([&] { late.commit(); }, "already exists") == ErrorKind::cannot_create);
  CHECK(folder.read("late") == "theirs");
}

TEST_CASE("writing waits for a full pipe") {
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

TEST_CASE("outputs written in place have no gaps") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  OutputFile out("/dev/fd/" + std::to_string(ends[1]), {});
  CHECK(kind_of([&] { out.skip(10); }, "Illegal seek") == ErrorKind::io);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a folder created at the output's path meanwhile is kept, without files next to it") {
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

TEST_CASE("the mode of a new file follows the umask") {
  // In a child process, because the umask is read only once.
  const ScratchFolder folder;
  const fs::path out = folder.path() / "out.npy";
  const std::string command = "umask 027; '" + std::string(ATTN_BINARY) +
                              "' random rand --seed 1 -o '" + out.string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(mode_of(out) == 0640);
}

/// Files are recorded by the program, not by tests, which write a file several times.
struct RecordedFiles {
  RecordedFiles() { record_used_files(true); }
  RecordedFiles(const RecordedFiles&) = delete;
  RecordedFiles& operator=(const RecordedFiles&) = delete;
  ~RecordedFiles() { record_used_files(false); }
};

TEST_CASE("an output never replaces an input, under any name") {
  const RecordedFiles recorded;
  const ScratchFolder folder;
  const fs::path input = folder.write("in", "input");
  note_input(input.string());
  fs::create_symlink("in", folder.path() / "link");
  fs::create_hard_link(input, folder.path() / "hard");
  for (const char* name : {"in", "link", "hard", "./in"}) {
    const auto overwrite = [&] { write_whole(folder.path() / name, "x", {.force = true}); };
    CHECK(kind_of(overwrite, "is an input") == ErrorKind::cannot_create);
  }
  CHECK(folder.read("in") == "input");
  // Also one that is read after the output was opened.
  const fs::path late = folder.write("late", "input");
  OutputFile out(late.string(), {.force = true});
  note_input(late.string());
  CHECK(kind_of([&] { out.commit(); }, "is an input") == ErrorKind::cannot_create);
  CHECK(folder.read("late") == "input");
}

TEST_CASE("an output never replaces another output, under any name") {
  const RecordedFiles recorded;
  const ScratchFolder folder;
  fs::create_symlink("out", folder.path() / "link");
  OutputFile out((folder.path() / "out").string(), {.force = true});
  out.write("first");
  for (const char* name : {"out", "./out", "link"}) {
    const auto overwrite = [&] { write_whole(folder.path() / name, "x", {.force = true}); };
    CHECK(kind_of(overwrite, "is another output") == ErrorKind::cannot_create);
  }
  out.commit();
  { const OutputFile closed = std::move(out); }
  for (const char* name : {"out", "link"}) {
    const auto overwrite = [&] { write_whole(folder.path() / name, "x", {.force = true}); };
    CHECK(kind_of(overwrite, "is another output") == ErrorKind::cannot_create);
  }
  CHECK(folder.read("out") == "first");
}

TEST_CASE("symbolic links are kept and their targets are written") {
  const ScratchFolder folder;
  fs::create_directory(folder.path() / "sub");
  fs::create_symlink("sub/target", folder.path() / "link");
  write_whole(folder.path() / "link", "one");
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(folder.read("sub/target") == "one");
  CHECK(kind_of([&] { write_whole(folder.path() / "link", "two"); }, "already exists") ==
        ErrorKind::cannot_create);
  write_whole(folder.path() / "link", "two", {.force = true});
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(folder.read("sub/target") == "two");
}

TEST_CASE("paths that cannot be written are refused at once") {
  const ScratchFolder folder;
  folder.write("file", "");
  fs::create_symlink("loop", folder.path() / "loop");
  const auto refuse = [&](const std::string& name, const std::string& message) {
    const std::string path = folder.path() / name;
    CHECK(kind_of([&] { OutputFile(path, {.force = true}); }, message) == ErrorKind::cannot_create);
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

TEST_CASE("a closed reader is reported as BrokenPipe") {
  const auto before = signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  CHECK_THROWS_AS(write_whole("/dev/fd/" + std::to_string(ends[1]), "x"), BrokenPipe);
  close(ends[1]);
  signal(SIGPIPE, before);
}

TEST_CASE("a signal removes unfinished outputs and ends the program by that signal") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const ScratchFolder folder;
    const pid_t child = fork();
    if (child == 0) {
      signal(number, SIG_DFL);
      remove_temp_files_on_signals();
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
