#include "attn/io/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <vector>

#include "attn/io/descriptor.h"
#include "attn/io/file.h"
#include "attn/io/temporaries.h"
#include "support/run_attn.h"

using namespace attn;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

FileBytes mapped(const fs::path& path) {
  return read_file(path.string(), kNoLimit, FileAccess::map);
}

/// How a child process that does this ends, as waitpid() tells it, and what it wrote to stderr.
std::pair<int, std::string> end_of(const std::function<void()>& action) {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    action();
    _exit(0);
  }
  close(pipe_ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(pipe_ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return {status, text};
}

/// Looks at the byte `at`, which the compiler must not see through.
void touch(const std::byte* bytes, std::size_t at) {
  [[maybe_unused]] const volatile std::byte seen = bytes[at];
}

}  // namespace

TEST_CASE("a large file is used where it is, a small one or a pipe is read") {
  const ScratchFolder folder;
  const std::string text(300001, 'm');
  const fs::path large = folder.write("large", text), small = folder.write("small", "s");
  const FileBytes file = mapped(large);
  CHECK(file.mapped.has_value());
  CHECK((file.text() == text));
  CHECK(file.digest() == read_file(large.string()).digest());
  CHECK_FALSE(read_file(large.string()).mapped.has_value());
  CHECK_FALSE(mapped(small).mapped.has_value());
  const int fd = open(large.c_str(), O_RDONLY);
  CHECK_FALSE(mapped("/dev/fd/" + std::to_string(fd)).mapped.has_value());
  close(fd);
  // What is too large for --max-memory is so in either way.
  CHECK_THROWS_WITH(read_file(large.string(), 300000, FileAccess::map), Contains("300001 or more"));
}

TEST_CASE("more files than can be watched are read") {
  const ScratchFolder folder;
  const fs::path path = folder.write("large", std::string(300000, 'm'));
  std::vector<FileBytes> files;
  while (files.size() < 80) files.push_back(mapped(path));
  std::size_t count = 0;
  for (const FileBytes& file : files) {
    CHECK((file.text() == files[0].text()));
    count += file.mapped.has_value();
  }
  CHECK(count >= 60);
  CHECK(count < 80);
  files.clear();
  CHECK(mapped(path).mapped.has_value());
}

TEST_CASE("what cannot be mapped is nothing") {
  const ScratchFolder folder;
  const Descriptor file(open(folder.write("a", "a").c_str(), O_WRONLY));
  CHECK(map_file(file.get(), 1, "a") == nullptr);  // it may not be read
  CHECK(map_file(file.get(), 0, "a") == nullptr);
}

TEST_CASE("a mapped file that is cut short ends the program with a line, and no output is left") {
  const ScratchFolder folder;
  const fs::path path = folder.write("cut\n.npy", std::string(300000, 'm'));
  const auto [status, text] = end_of([&] {
    const FileBytes file = mapped(path);
    OutputFile unfinished((folder.path() / "out").string(), {});
    unfinished.write("half");
    if (truncate(path.c_str(), 10000) != 0) _exit(1);
    touch(file.data.get(), 9999);
    touch(file.data.get(), 200000);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 74);
  CHECK(text == "attn: " + folder.path().string() +
                    "/cut\\x0a.npy: was cut short while it was read, or its disk fails\n");
  CHECK(folder.names() == std::vector<std::string>{"cut\n.npy"});
}

TEST_CASE("an input that is cut short while it is copied is named, and not the output") {
  const ScratchFolder folder;
  const fs::path path = folder.write("cut", std::string(300000, 'm'));
  const auto [status, text] = end_of([&] {
    const FileBytes file = mapped(path);
    OutputFile copy((folder.path() / "out").string(), {});
    if (truncate(path.c_str(), 10000) != 0) _exit(1);
    copy.write(file.bytes());
  });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 74));
  CHECK_THAT(text, Contains("/cut: was cut short"));
  CHECK(folder.names() == std::vector<std::string>{"cut"});
}

TEST_CASE("bytes that are lost elsewhere are none of this") {
  const ScratchFolder folder;
  const fs::path path = folder.write("a", std::string(300000, 'm'));
  const auto [status, text] = end_of([&] {
    const FileBytes watched = mapped(path);
    const fs::path other = folder.write("b", std::string(100000, 'b'));
    const int fd = open(other.c_str(), O_RDONLY);
    const void* start = mmap(nullptr, 100000, PROT_READ, MAP_PRIVATE, fd, 0);
    if (truncate(other.c_str(), 0) != 0) _exit(1);
    touch(static_cast<const std::byte*>(start), 50000);
  });
#ifdef __SANITIZE_ADDRESS__
  CHECK(WEXITSTATUS(status) != 74);
#else
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS));
#endif
  CHECK_THAT(text, !Contains("cut short"));
}

TEST_CASE("a mapped file that is written to is told, one that is replaced or removed is not") {
  const ScratchFolder folder;
  const fs::path path = folder.write("a", std::string(300000, 'm'));
  const FileBytes file = mapped(path);
  const FileBytes copy = read_file(path.string());
  file.require_unchanged();
  {
    std::FILE* const stream = std::fopen(path.c_str(), "r+");
    REQUIRE(stream != nullptr);
    std::fputc('x', stream);
    std::fclose(stream);
    struct timespec times[2] = {{1, 0}, {1, 0}};  // clocks of file systems are coarse
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  }
  CHECK_THROWS_WITH(file.require_unchanged(), Contains("a: was written to while it was read"));
  copy.require_unchanged();
  folder.write("b", std::string(300000, 'n'));
  fs::rename(folder.path() / "b", path);
  file.require_unchanged();
  fs::remove(path);
  file.require_unchanged();
}
