#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "attn/io/open_file.h"
#include "support/child.h"

using namespace attn;

namespace {

bool is_null_device(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
}

}  // namespace

TEST_CASE("a closed standard stream is opened, so that no output gets its descriptor") {
  CHECK(holds_in_child([] {
    for (const int fd : {0, 1, 2}) close(fd);
    occupy_closed_streams();
    char byte = 0;
    return is_null_device(0) && is_null_device(1) && is_null_device(2) && read(0, &byte, 1) == -1 &&
           errno == EBADF && write(1, &byte, 1) == -1 && errno == EBADF;
  }));
  CHECK(holds_in_child([] {
    close(0);
    const int out = fcntl(1, F_GETFL);
    occupy_closed_streams();
    return is_null_device(0) && fcntl(1, F_GETFL) == out;
  }));
}

TEST_CASE("ENOMEM is reported as a lack of memory") {
  CHECK(system_error(ErrorKind::io, "a", ENOMEM).kind() == ErrorKind::data);
  CHECK(system_error(ErrorKind::io, "a", ENOSPC).kind() == ErrorKind::io);
  CHECK(std::string(system_error(ErrorKind::io, "a", ENOMEM).what()) ==
        "a: Cannot allocate memory");
}
