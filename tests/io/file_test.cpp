#include "attn/io/file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "attn/base/error.h"
#include "support/error_kind.h"
#include "support/run_attn.h"

using namespace attn;
namespace fs = std::filesystem;

TEST_CASE("a file is read into aligned memory, with the digest of xxh128sum") {
  const ScratchFolder folder;
  std::string text(200000, 'x');
  text += std::string("\0\xFF", 2);
  const FileBytes file = read_file(folder.write("a", text).string());
  CHECK(file.text() == text);
  CHECK(reinterpret_cast<std::uintptr_t>(file.data.get()) % 64 == 0);
  // Digests computed by Debian's libxxhash 0.8.1.
  CHECK(read_file(folder.write("empty", "").string()).digest() ==
        "xxh128:99aa06d3014798d86001c324468d497f");
  CHECK(read_file(folder.write("abc", "abc").string()).digest() ==
        "xxh128:06b05ab6733a618578af5f94892f3950");
  CHECK(read_file(folder.write("zeros", std::string(1000000, '\0')).string()).digest() ==
        "xxh128:ef233fc372a159319d648391f361d99a");
}

TEST_CASE("a path that is not a file is refused by name") {
  const ScratchFolder folder;
  const auto refuse = [](const std::string& path, const std::string& message) {
    CHECK(kind_of([&] { read_file(path); }, message) == ErrorKind::no_input);
  };
  refuse(folder.path() / "missing", "missing: No such file or directory");
  refuse(folder.path(), "is a directory");
  refuse("/dev/zero", "/dev/zero: is a device");
  refuse(std::string("/dev/null\0.npy", 14), "NUL");
  CHECK(read_file("/dev/null").size == 0);
  fs::create_symlink("loop", folder.path() / "loop");
  refuse(folder.path() / "loop", "Too many levels");
}

TEST_CASE("a FIFO is read to its end, or refused without a writer") {
  const ScratchFolder folder;
  const std::string path = folder.path() / "pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(kind_of([&] { read_file(path); }, "without a writer") == ErrorKind::no_input);
  const std::string text(300000, 'y');
  std::thread writer([&] { std::ofstream(path) << text; });
  const FileBytes file = read_file(path);
  writer.join();
  CHECK(file.text() == text);
  CHECK(fs::is_fifo(path));
}

TEST_CASE("a pipe is read only up to the limit") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "0123456789", 10) == 10);
  close(ends[1]);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  CHECK(kind_of([&] { read_file(path, 9); }, "expected at most 9 bytes, found 10 or more") ==
        ErrorKind::data);
  close(ends[0]);
}

TEST_CASE("an inherited socket or terminal is read, a device is not") {
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
