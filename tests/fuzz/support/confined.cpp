// open(), fcntl() and mkdir() replace those of the C library, for attn and for libFuzzer. Without a
// Confined object they make the system calls.
#include "support/confined.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace attn::fuzz {
namespace {

bool g_confined = false;

int refused(int code) {
  errno = code;
  return -1;
}

}  // namespace

Confined::Confined() { g_confined = true; }
Confined::~Confined() { g_confined = false; }

}  // namespace attn::fuzz

using attn::fuzz::g_confined;
using attn::fuzz::refused;

extern "C" int open(const char* path, int flags, ...) {
  if (g_confined) return refused(ENOENT);
  va_list more;
  va_start(more, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(more, unsigned) : 0;
  va_end(more);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" int fcntl(int fd, int command, ...) {
  if (g_confined) return refused(EBADF);
  va_list more;
  va_start(more, command);
  void* const argument = va_arg(more, void*);  // a pointer or a number, both in one register
  va_end(more);
  return static_cast<int>(syscall(SYS_fcntl, fd, command, argument));
}

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  if (g_confined) return refused(EACCES);
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
