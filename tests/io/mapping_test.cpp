#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/mapped_file.h"
#include "attn/io/open_file.h"
#include "attn/io/staged_file.h"
#include "attn/io/temp_files.h"
#include "support/child.h"
#include "support/run_attn.h"

using namespace attn;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

FileBytes mapped(const fs::path& path) {
  return read_file(path.string(), kNoLimit, FileAccess::map);
}

/// Reads the byte at `at`, so that the compiler cannot optimise it away.
void touch(const std::byte* bytes, std::size_t at) {
  [[maybe_unused]] const volatile std::byte byte = bytes[at];
}

}  // namespace

TEST_CASE("a large file is mapped, a small file or a pipe is read") {
  const ScratchFolder folder;
  const std::string text(300001, 'm');
  const fs::path large = folder.write("large", text), small = folder.write("small", "s");
  const FileBytes file = mapped(large);
  CHECK(file.is_mapped);
  CHECK((file.text() == text));
  CHECK(file.digest() == read_file(large.string()).digest());
  CHECK_FALSE(read_file(large.string()).is_mapped);
  CHECK_FALSE(mapped(small).is_mapped);
  const int fd = open(large.c_str(), O_RDONLY);
  CHECK_FALSE(mapped("/dev/fd/" + std::to_string(fd)).is_mapped);
  close(fd);
  // --max-memory refuses a large file, mapped or read.
  CHECK_THROWS_WITH(read_file(large.string(), 300000, FileAccess::map), Contains("300001 or more"));
}

TEST_CASE("files beyond the number that can be watched are read") {
  const ScratchFolder folder;
  const fs::path path = folder.write("large", std::string(300000, 'm'));
  std::vector<FileBytes> files;
  while (files.size() < 80) files.push_back(mapped(path));
  std::size_t count = 0;
  for (const FileBytes& file : files) {
    CHECK((file.text() == files[0].text()));
    count += file.is_mapped;
  }
  CHECK(count >= 60);
  CHECK(count < 80);
  files.clear();
  CHECK(mapped(path).is_mapped);
}

TEST_CASE("a file that cannot be mapped gives no mapping") {
  const ScratchFolder folder;
  Descriptor file(open(folder.write("a", "a").c_str(), O_WRONLY));
  struct stat info {};
  REQUIRE(fstat(file.get(), &info) == 0);
  CHECK(map_file(file, info, "a") == nullptr);  // it is not readable
  info.st_size = 0;
  CHECK(map_file(file, info, "a") == nullptr);
  CHECK(file.is_open());
}

TEST_CASE("a mapped file that is cut short ends the program with a message and no output") {
  const ScratchFolder folder;
  const fs::path path = folder.write("cut\n.npy", std::string(300000, 'm'));
  const auto [status, text] = end_of_child([&] {
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
                    "/cut\\x0a.npy: was truncated while being read, or its disk failed\n");
  CHECK(folder.names() == std::vector<std::string>{"cut\n.npy"});
}

TEST_CASE("the message names the one of many mapped files that is cut short") {
  const ScratchFolder folder;
  std::vector<fs::path> paths;
  for (const char* const name : {"one", "two", "three"})
    paths.push_back(folder.write(name, std::string(300000, 'm')));
  const auto [status, text] = end_of_child([&] {
    std::vector<FileBytes> files;
    for (const fs::path& path : paths) files.push_back(mapped(path));
    if (truncate(paths[1].c_str(), 10000) != 0) _exit(1);
    for (const FileBytes& file : files) touch_pages(file.data.get(), file.size);
  });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 74));
  CHECK_THAT(text, Contains("/two: was truncated"));
}

TEST_CASE("existing bytes of a mapped file can be probed") {
  const ScratchFolder folder;
  const FileBytes file = mapped(folder.write("a", std::string(300000, 'm')));
  CHECK_NOTHROW(touch_pages(file.data.get(), file.size));
  CHECK_NOTHROW(touch_pages(file.data.get(), 0));
}

TEST_CASE("the message names an input that is cut short while it is copied, not the output") {
  const ScratchFolder folder;
  const fs::path path = folder.write("cut", std::string(300000, 'm'));
  const auto [status, text] = end_of_child([&] {
    const FileBytes file = mapped(path);
    OutputFile copy((folder.path() / "out").string(), {});
    if (truncate(path.c_str(), 10000) != 0) _exit(1);
    copy.write(file.bytes());
  });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 74));
  CHECK_THAT(text, Contains("/cut: was truncated"));
  CHECK(folder.names() == std::vector<std::string>{"cut"});
}

TEST_CASE("a bus error elsewhere ends the program with its signal") {
  const ScratchFolder folder;
  const fs::path path = folder.write("a", std::string(300000, 'm'));
  const auto [status, text] = end_of_child([&] {
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
  CHECK_THAT(text, !Contains("truncated"));
}

namespace {

/// Changes the file in place.
void modify(const fs::path& path) {
  std::FILE* const stream = std::fopen(path.c_str(), "r+");
  REQUIRE(stream != nullptr);
  std::fputc('x', stream);
  std::fclose(stream);
  const timespec times[2] = {{1, 0}, {1, 0}};  // file system timestamps are coarse
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

}  // namespace

TEST_CASE("a mapped file that is replaced or removed is as it was") {
  const ScratchFolder folder;
  const fs::path path = folder.write("a", std::string(300000, 'm'));
  const FileBytes file = mapped(path);
  folder.write("b", std::string(300000, 'n'));
  fs::rename(folder.path() / "b", path);
  require_mapped_files_unchanged();
  fs::remove(path);
  require_mapped_files_unchanged();
}

TEST_CASE("no output is written if a mapped file was modified, even if it was moved") {
  const ScratchFolder folder;
  const fs::path path = folder.write("a", std::string(300000, 'm')), moved = folder.path() / "b";
  const FileBytes file = mapped(path);
  {
    OutputFile out((folder.path() / "out").string(), {});
    fs::rename(path, moved);
    modify(moved);
    CHECK_THROWS_WITH(out.commit(), Contains("a: was modified while being read"));
  }
  CHECK(folder.names() == std::vector<std::string>{"b"});
}

TEST_CASE("a file that was modified before its mapping ended is reported once") {
  const ScratchFolder folder;
  const fs::path path = folder.write("a", std::string(300000, 'm'));
  {
    const FileBytes file = mapped(path);
    modify(path);
  }
  CHECK_THROWS_WITH(require_mapped_files_unchanged(), Contains("a: was modified"));
  require_mapped_files_unchanged();
  {
    const FileBytes file = mapped(path);
    modify(path);
    folder.write("a", "");
    CHECK_THROWS_WITH(require_mapped_files_unchanged(), Contains("a: was modified"));
  }
  require_mapped_files_unchanged();
}
