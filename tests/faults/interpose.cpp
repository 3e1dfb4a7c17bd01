// A library for LD_PRELOAD that counts a program's calls of each kind and makes chosen ones fail.
//
//     ATTN_FAULT=KIND:ACTION:N[+]   the action at the N-th call of a kind, from 1; '+': and all
//     later ATTN_FAULT_COUNTS=FILE        receives 64-bit integers: the number of calls of each
//     kind, in the
//                                   order of kKinds; the number of chosen calls; and how many of
//                                   these may have lost written data
//
// An ACTION is one of:
//     ENOSPC, EIO, ...    the call fails with this error and does nothing, except that close()
//     closes short               a read or write transfers one byte, or one part kill, killed
//     SIGKILL before the call, or after it stop, status        SIGTERM or SIGUSR1 before the call
//     cut=FILE            truncates the file to length 0
//     swap=FILE           renames FILE.new to FILE
//     fill=FILE           overwrites FILE with the contents of FILE.new, in the middle of a read
//
// Counting begins at main(). Calls of the loader and of constructors of libraries loaded by
// dlopen() are not counted. Neither are the C library's allocations at the end of a thread: if one
// fails, it aborts.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "twins.h"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum Kind {
  kAlloc,
  kOpen,
  kRead,
  kWrite,
  kSync,
  kFolderSync,
  kClose,
  kRename,
  kCut,
  kReserve,
  kMap,
  kFolder,
  kStat,
  kLock,
  kThread
};
constexpr const char* kKinds[] = {"alloc",       "open",   "read",   "write", "sync",
                                  "folder-sync", "close",  "rename", "cut",   "reserve",
                                  "map",         "folder", "stat",   "lock",  "thread"};
constexpr int kKindCount = sizeof kKinds / sizeof *kKinds;

struct Errno {
  const char* name;
  int value;
};
constexpr Errno kErrors[] = {{"ENOMEM", ENOMEM}, {"EIO", EIO},       {"ENOSPC", ENOSPC},
                             {"EINTR", EINTR},   {"EMFILE", EMFILE}, {"EACCES", EACCES},
                             {"EDQUOT", EDQUOT}, {"EROFS", EROFS},   {"EAGAIN", EAGAIN},
                             {"EINVAL", EINVAL}, {"ENOLCK", ENOLCK}, {"EOPNOTSUPP", EOPNOTSUPP}};

enum class Action { none, fail, one_byte, kill, killed, stop, status, cut, swap, fill };

struct Plan {
  int kind = -1;
  Action action = Action::none;
  int error = 0;
  uint64_t at = 0;
  bool ever = false;
  char path[4096] = {};
};

using Counter = std::atomic<uint64_t>;

Plan plan;
Counter own_counts[kKindCount + 2];
Counter* counts = own_counts;
std::atomic<bool> armed = false;
__thread int uncounted __attribute__((tls_model("initial-exec"))) =
    0;  // > 0: calls of this thread are not counted

void parse_action(const char* text) {
  for (const auto& [name, value] : kErrors)
    if (std::strcmp(text, name) == 0) plan.action = Action::fail, plan.error = value;
  if (std::strcmp(text, "short") == 0) plan.action = Action::one_byte;
  if (std::strcmp(text, "kill") == 0) plan.action = Action::kill;
  if (std::strcmp(text, "killed") == 0) plan.action = Action::killed;
  if (std::strcmp(text, "stop") == 0) plan.action = Action::stop;
  if (std::strcmp(text, "status") == 0) plan.action = Action::status;
  if (std::strncmp(text, "cut=", 4) == 0) plan.action = Action::cut;
  if (std::strncmp(text, "swap=", 5) == 0) plan.action = Action::swap;
  if (std::strncmp(text, "fill=", 5) == 0) plan.action = Action::fill;
  if (const char* path = std::strchr(text, '='))
    std::strncpy(plan.path, path + 1, sizeof plan.path - 1);
}

void parse_plan(const char* given) {
  char text[8192] = {};
  std::strncpy(text, given, sizeof text - 1);
  char* const action = std::strchr(text, ':');
  char* const number = std::strrchr(text, ':');
  if (action == nullptr || action == number) _exit(99);
  *action = *number = '\0';
  for (int i = 0; i < kKindCount; ++i)
    if (std::strcmp(text, kKinds[i]) == 0) plan.kind = i;
  parse_action(action + 1);
  plan.at = std::strtoull(number + 1, nullptr, 10);
  plan.ever = number[std::strlen(number + 1)] == '+';
  if (plan.kind < 0 || plan.action == Action::none || plan.at == 0) _exit(99);
}

void share_counts(const char* path) {
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT, 0600));
  if (fd < 0 || syscall(SYS_ftruncate, fd, sizeof own_counts) != 0) _exit(99);
  void* const address = reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, sizeof own_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  if (address == MAP_FAILED) _exit(99);
  counts = static_cast<Counter*>(address);
  syscall(SYS_close, fd);
}

/// Counts a call. Returns whether the action applies to it.
bool is_chosen(Kind kind) {
  if (!armed || uncounted > 0) return false;
  const uint64_t number = ++counts[kind];
  if (plan.kind != kind || number < plan.at || (number > plan.at && !plan.ever)) return false;
  ++counts[kKindCount];
  return true;
}

void end_here(int signal_number) { syscall(SYS_kill, getpid(), signal_number); }

/// The path of the action with a suffix.
struct SuffixedPath {
  char path[sizeof plan.path + 4];
  explicit SuffixedPath(const char* suffix) {
    std::strcpy(path, plan.path);
    std::strcat(path, suffix);
  }
};

void fill() {
  const int from =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, SuffixedPath(".new").path, O_RDONLY));
  const int to = static_cast<int>(syscall(SYS_openat, AT_FDCWD, plan.path, O_WRONLY));
  char bytes[65536];
  off_t size = 0;
  for (long count; (count = syscall(SYS_read, from, bytes, sizeof bytes)) > 0; size += count)
    if (syscall(SYS_write, to, bytes, count) != count) _exit(99);
  if (syscall(SYS_ftruncate, to, size) != 0) _exit(99);
  syscall(SYS_close, from);
  syscall(SYS_close, to);
}

/// Does what precedes a chosen call. Returns true if the call is to be skipped.
bool act() {
  switch (plan.action) {
    case Action::fail:
      errno = plan.error;
      return true;
    case Action::kill:
      end_here(SIGKILL);
      break;
    case Action::stop:
      end_here(SIGTERM);
      break;
    case Action::status:
      kill(getpid(), SIGUSR1);
      break;
    case Action::cut:
      syscall(SYS_truncate, plan.path, 0);
      break;
    case Action::swap:
      syscall(SYS_rename, SuffixedPath(".new").path, plan.path);
      break;
    case Action::fill:
      fill();
      break;
    default:
      break;
  }
  return false;
}

/// Makes a system call, counted as `kind`. Returns -1 and sets errno on errors.
template <class... Arguments>
long call(Kind kind, long number, Arguments... arguments) {
  const bool chosen = is_chosen(kind);
  if (chosen && act()) return -1;
  const long result = syscall(number, arguments...);
  if (chosen && plan.action == Action::killed) end_here(SIGKILL);
  return result;
}

Twins twins;

/// The same for reads and writes, which may transfer less than requested: one byte, or one part.
template <class Buffer, class... Rest>
ssize_t transfer(Kind kind, long number, int fd, Buffer buffer, size_t size, Rest... rest) {
  const bool chosen = is_chosen(kind);
  if (chosen && plan.action == Action::fill && kind == kRead) {
    const long half = syscall(number, fd, buffer, size / 2, rest...);
    fill();
    return half;
  }
  if (kind == kWrite) twins.write(fd);
  if (chosen && act()) return -1;
  if (chosen && plan.action == Action::one_byte) size = std::min<size_t>(size, 1);
  const long result = syscall(number, fd, buffer, size, rest...);
  if (chosen && plan.action == Action::killed) end_here(SIGKILL);
  return result;
}

bool is_folder(int fd) {
  struct stat info;
  return syscall(SYS_fstat, fd, &info) == 0 && S_ISDIR(info.st_mode);
}

int sync_by(long number, int fd) {
  const Kind kind = is_folder(fd) ? kFolderSync : kSync;
  const int result = static_cast<int>(call(kind, number, fd));
  if (result != 0 && plan.kind == kind) ++counts[kKindCount + 1];
  return result;
}

bool allocation_fails() { return is_chosen(kAlloc) && act(); }

int (*real_main)(int, char**, char**) = nullptr;

int main_with_counts(int argc, char** argv, char** environment) {
  if (const char* path = std::getenv("ATTN_FAULT_COUNTS")) share_counts(path);
  if (const char* text = std::getenv("ATTN_FAULT")) parse_plan(text);
  armed = true;
  return real_main(argc, argv, environment);
}

/// The mode argument of open() or openat(), or 0 if there is none.
mode_t mode_in(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  return static_cast<int>(call(kOpen, SYS_openat, folder, path, flags, mode));
}

}  // namespace

extern "C" {

/// Stops counting and failing. For programs that make calls of their own at the end.
void attn_end_faults() { armed = false; }

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*end)(), void* stack) {
  using Start = int (*)(decltype(main), int, char**, void (*)(), void (*)(), void (*)(), void*);
  real_main = main;
  const auto next = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return next(main_with_counts, argc, argv, init, fini, end, stack);
}

void* malloc(size_t size) { return allocation_fails() ? nullptr : __libc_malloc(size); }

void* calloc(size_t count, size_t size) {
  return allocation_fails() ? nullptr : __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) {
  return allocation_fails() ? nullptr : __libc_realloc(old, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  return allocation_fails() ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  void* const memory = allocation_fails() ? nullptr : __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *result = memory;
  return 0;
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_at(folder, path, flags, mode);
}

int __open_2(const char* path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }

int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  const bool opens = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  const int result = static_cast<int>(opens ? call(kOpen, SYS_fcntl, fd, command, argument)
                                            : syscall(SYS_fcntl, fd, command, argument));
  if (opens && result >= 0) twins.pair(fd, result);
  return result;
}

ssize_t read(int fd, void* buffer, size_t size) {
  return transfer(kRead, SYS_read, fd, buffer, size);
}

ssize_t __read_chk(int fd, void* buffer, size_t size, size_t) { return read(fd, buffer, size); }

ssize_t pread(int fd, void* buffer, size_t size, off_t at) {
  return transfer(kRead, SYS_pread64, fd, buffer, size, at);
}

ssize_t __pread_chk(int fd, void* buffer, size_t size, off_t at, size_t) {
  return pread(fd, buffer, size, at);
}

ssize_t write(int fd, const void* buffer, size_t size) {
  return transfer(kWrite, SYS_write, fd, buffer, size);
}

ssize_t pwrite(int fd, const void* buffer, size_t size, off_t at) {
  return transfer(kWrite, SYS_pwrite64, fd, buffer, size, at);
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
  return transfer(kWrite, SYS_writev, fd, parts, count);
}

ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t at) {
  return transfer(kWrite, SYS_pwritev, fd, parts, count, at, 0);
}

int fsync(int fd) { return sync_by(SYS_fsync, fd); }

int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }

/// Frees the descriptor even if it fails, as Linux does.
int close(int fd) {
  const bool written =
      (syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) != O_RDONLY && !twins.is_reported(fd);
  const bool chosen = is_chosen(kClose);
  const bool fails = chosen && act();
  twins.close(fd, !fails);
  if (fails && written && plan.error != EINTR) ++counts[kKindCount + 1];
  const long result = syscall(SYS_close, fd);
  if (chosen && plan.action == Action::killed) end_here(SIGKILL);
  if (fails) errno = plan.error;
  return fails ? -1 : static_cast<int>(result);
}

int rename(const char* from, const char* to) {
  return static_cast<int>(call(kRename, SYS_rename, from, to));
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return static_cast<int>(call(kRename, SYS_renameat2, from_folder, from, to_folder, to, 0));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return static_cast<int>(call(kRename, SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int link(const char* from, const char* to) {
  return static_cast<int>(call(kRename, SYS_link, from, to));
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  return static_cast<int>(call(kRename, SYS_linkat, from_folder, from, to_folder, to, flags));
}

int ftruncate(int fd, off_t size) { return static_cast<int>(call(kCut, SYS_ftruncate, fd, size)); }

int fallocate(int fd, int mode, off_t from, off_t size) {
  return static_cast<int>(call(kReserve, SYS_fallocate, fd, mode, from, size));
}

int posix_fallocate(int fd, off_t from, off_t size) {
  return call(kReserve, SYS_fallocate, fd, 0, from, size) == 0 ? 0 : errno;
}

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t at) {
  return reinterpret_cast<void*>(call(kMap, SYS_mmap, address, size, protection, flags, fd, at));
}

int mkdir(const char* path, mode_t mode) {
  return static_cast<int>(call(kFolder, SYS_mkdir, path, mode));
}

int mkdirat(int folder, const char* path, mode_t mode) {
  return static_cast<int>(call(kFolder, SYS_mkdirat, folder, path, mode));
}

int fstat(int fd, struct stat* info) { return static_cast<int>(call(kStat, SYS_fstat, fd, info)); }

int flock(int fd, int operation) { return static_cast<int>(call(kLock, SYS_flock, fd, operation)); }

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (is_chosen(kThread) && act()) return plan.error;
  return next(thread, attributes, start, argument);
}

void* dlopen(const char* path, int flags) {
  using Open = void* (*)(const char*, int);
  ++uncounted;
  static const auto next = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  void* const library = next(path, flags);
  --uncounted;
  return library;
}

int __cxa_thread_atexit_impl(void (*end)(void*), void* object, void* library) {
  using Note = int (*)(void (*)(void*), void*, void*);
  ++uncounted;
  static const auto next = reinterpret_cast<Note>(dlsym(RTLD_NEXT, "__cxa_thread_atexit_impl"));
  const int result = next(end, object, library);
  --uncounted;
  return result;
}

// The names of these calls in programs with 64-bit file offsets.
int open64(const char*, int, ...) __attribute__((alias("open")));
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));
int __open64_2(const char*, int) __attribute__((alias("__open_2")));
int fcntl64(int, int, ...) __attribute__((alias("fcntl")));
ssize_t pread64(int, void*, size_t, off_t) __attribute__((alias("pread")));
ssize_t __pread64_chk(int, void*, size_t, off_t, size_t) __attribute__((alias("__pread_chk")));
ssize_t pwrite64(int, const void*, size_t, off_t) __attribute__((alias("pwrite")));
ssize_t pwritev64(int, const struct iovec*, int, off_t) __attribute__((alias("pwritev")));
int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));
int fallocate64(int, int, off_t, off_t) __attribute__((alias("fallocate")));
int posix_fallocate64(int, off_t, off_t) __attribute__((alias("posix_fallocate")));
void* mmap64(void*, size_t, int, int, int, off_t) __attribute__((alias("mmap")));
int fstat64(int, struct stat64*) __attribute__((alias("fstat")));

}  // extern "C"
