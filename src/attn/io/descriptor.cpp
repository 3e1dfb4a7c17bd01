#include "attn/io/descriptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "attn/base/printable.h"

namespace attn {
namespace fs = std::filesystem;

Descriptor::~Descriptor() { close(); }

bool Descriptor::close() {
  const int fd = std::exchange(fd_, -1);
  // Linux frees the descriptor even if a signal interrupts close(), so it must not be retried.
  return fd < 0 || ::close(fd) == 0 || errno == EINTR;
}

std::optional<int> descriptor_named(const std::string& path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int fd = -1;
    const char* const end = path.data() + path.size();
    const auto [rest, error] = std::from_chars(path.data() + folder.size(), end, fd);
    if (error == std::errc() && rest == end && fd >= 0) return fd;
  }
  return std::nullopt;
}

bool is_standard_input(const std::string& path) {
  if (path == "-" || descriptor_named(path) == STDIN_FILENO) return true;
  struct stat named {
  }, input{};
  return stat(path.c_str(), &named) == 0 && !S_ISREG(named.st_mode) &&
         fstat(STDIN_FILENO, &input) == 0 && named.st_dev == input.st_dev &&
         named.st_ino == input.st_ino;
}

bool is_stream(const std::string& path) {
  struct stat info {};
  return path == "-" || descriptor_named(path) ||
         (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

std::string follow_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as many as Linux follows
  std::error_code ignored;
  fs::path place = path;
  for (int hops = 0; hops < kMostLinks && fs::is_symlink(fs::symlink_status(place, ignored));
       ++hops)
    place = place.parent_path() / fs::read_symlink(place, ignored);
  return place.string();
}

void sync_folder(const std::string& path, const std::string& folder) {
  Descriptor opened(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: a file system, such as some network ones, that cannot sync directories.
  if (!opened.is_open() || (fsync(opened.get()) != 0 && errno != EINVAL))
    throw system_error(ErrorKind::io, path, errno);
}

Error system_error(ErrorKind kind, const std::string& path, int code) {
  const bool forbidden = code == EACCES || code == EPERM;
  if (code == ENOMEM) kind = ErrorKind::data;  // as for any lack of memory
  return Error(forbidden ? ErrorKind::permission : kind,
               Problem{.where = {path}, .message = std::generic_category().message(code)});
}

void wait_for(int fd, short events) {
  pollfd ready{fd, events, 0};
  poll(&ready, 1, -1);
}

void occupy_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    const int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;  // the wrong direction, on purpose
    if (open("/dev/null", flags) < 0) (void)open("/", O_PATH);   // the lowest free number: fd
  }
}

}  // namespace attn
