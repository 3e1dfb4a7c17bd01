#include "attn/io/open_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "attn/base/text.h"

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
  constexpr int kMaxLinks = 40;  // as many as Linux follows
  std::error_code ignored;
  fs::path target = path;
  for (int hops = 0; hops < kMaxLinks && fs::is_symlink(fs::symlink_status(target, ignored));
       ++hops)
    target = target.parent_path() / fs::read_symlink(target, ignored);
  return target.string();
}

Error system_error(ErrorKind kind, const std::string& path, int code) {
  const bool forbidden = code == EACCES || code == EPERM;
  if (code == ENOMEM) kind = ErrorKind::data;  // as for any lack of memory
  return Error(forbidden ? ErrorKind::permission : kind,
               Problem{.where = {path}, .message = std::generic_category().message(code)});
}

Error path_error(ErrorKind kind, const std::string& path, const std::string& message) {
  return Error(kind, Problem{.where = {path}, .message = message});
}

struct stat status_of(int fd, const std::string& name) {
  struct stat info {};
  if (fstat(fd, &info) != 0) throw system_error(ErrorKind::io, name, errno);
  return info;
}

void wait_for(int fd, short events) {
  pollfd ready{fd, events, 0};
  poll(&ready, 1, -1);
}

void occupy_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    const int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;  // deliberately the wrong direction
    if (open("/dev/null", flags) < 0) (void)open("/", O_PATH);   // the lowest free number: fd
  }
}

namespace fs = std::filesystem;
namespace {

constexpr char kOwnDescriptors[] = "/proc/self/fd";

/// A descriptor that was inherited does not have FD_CLOEXEC; each of attn's own does.
bool is_own(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  return fd > STDERR_FILENO && flags >= 0 && (flags & FD_CLOEXEC) != 0;
}

/// Whether attn has the file open. The descriptor `besides` is ignored.
bool is_open_here(const struct stat& info, int besides) {
  std::error_code error;
  for (fs::directory_iterator entry(kOwnDescriptors, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string number = entry->path().filename().string();
    int fd = -1;
    std::from_chars(number.data(), number.data() + number.size(), fd);
    struct stat other {};
    if (fd != besides && is_own(fd) && fstat(fd, &other) == 0 && other.st_dev == info.st_dev &&
        other.st_ino == info.st_ino)
      return true;
  }
  return false;
}

/// The file at `path`, which can be neither read nor written through this descriptor.
Descriptor find_file(const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_NO_MAGICLINKS;
  Descriptor found(
      static_cast<int>(syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
  if (found.is_open() || errno == ENOENT) return found;
  // The path leads through a link such as /proc/self/fd/5 or /proc/self/cwd, or the kernel (before
  // Linux 5.6) does not have openat2.
  const bool is_magic = errno == ELOOP;
  found = Descriptor(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found.is_open() || !is_magic) return found;
  if (is_open_here(status_of(found.get(), path), found.get()))
    throw path_error(ErrorKind::no_input, path, "is a file that attn itself has open");
  return found;
}

/// Opens the file of an O_PATH descriptor. If /proc is missing, opens `path` and checks that it is
/// the same file.
Descriptor reopened(const Descriptor& file, const struct stat& info, const std::string& path,
                    int flags) {
  flags |= O_CLOEXEC | O_NOCTTY;
  const std::string link = std::string(kOwnDescriptors) + "/" + std::to_string(file.get());
  Descriptor opened(open(link.c_str(), flags));
  if (opened.is_open() || errno != ENOENT) return opened;
  opened = Descriptor(open(path.c_str(), flags | O_NONBLOCK));
  struct stat now {};
  if (!opened.is_open() || fstat(opened.get(), &now) != 0) return opened;
  if (now.st_dev == info.st_dev && now.st_ino == info.st_ino) return opened;
  errno = ESTALE;
  return Descriptor();
}

bool is_null_device(const struct stat& info) {
  return S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
}

/// An inherited descriptor of a terminal or socket is read like a pipe.
void require_readable(const OpenInput& input, const std::string& name) {
  const mode_t mode = input.info.st_mode;
  if (S_ISREG(mode) || S_ISFIFO(mode) || is_null_device(input.info)) return;
  if (input.inherited && (S_ISSOCK(mode) || isatty(input.descriptor.get()) == 1)) return;
  if (!S_ISDIR(mode)) throw path_error(ErrorKind::no_input, name, "is a device, not a file");
  std::error_code ignored;
  const bool is_model = fs::exists(name + "/config.json", ignored);
  throw Error(ErrorKind::no_input,
              Problem{.where = {name},
                      .message = "is a directory",
                      .hint = is_model ? "attn model inspect shows the layers of a model" : ""});
}

}  // namespace

void close_files_being_written() {
  std::vector<int> written;
  std::error_code error;
  for (fs::directory_iterator entry(kOwnDescriptors, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string number = entry->path().filename().string();
    int fd = -1;
    std::from_chars(number.data(), number.data() + number.size(), fd);
    struct stat info {};
    if (is_own(fd) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && fstat(fd, &info) == 0 &&
        S_ISREG(info.st_mode))
      written.push_back(fd);
  }
  for (const int fd : written) ::close(fd);
}

Descriptor inherited_descriptor(int fd, const std::string& name, ErrorKind kind) {
  if (is_own(fd)) throw path_error(kind, name, "is a file that attn itself has open");
  Descriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.is_open()) throw system_error(kind, name, errno);
  return copy;
}

OpenInput open_input(const std::string& path) {
  OpenInput input;
  input.name = path == "-" ? "standard input" : path;
  const std::string& name = input.name;
  if (path.find('\0') != std::string::npos)
    throw path_error(ErrorKind::no_input, path, "a path cannot contain a NUL");
  const std::optional<int> number = path == "-" ? STDIN_FILENO : descriptor_named(path);
  if (number) {
    input.inherited = true;
    input.descriptor = inherited_descriptor(*number, name, ErrorKind::no_input);
    input.info = status_of(input.descriptor.get(), name);
    require_readable(input, name);
    return input;
  }
  const Descriptor found = find_file(path);
  if (!found.is_open()) throw system_error(ErrorKind::no_input, name, errno);
  input.info = status_of(found.get(), name);
  if (!S_ISDIR(input.info.st_mode)) require_readable(input, name);
  input.descriptor = reopened(found, input.info, path, O_RDONLY | O_NONBLOCK);
  if (!input.descriptor.is_open()) throw system_error(ErrorKind::no_input, name, errno);
  require_readable(input, name);  // a directory: only if there is permission to read it
  return input;
}

Descriptor open_special_output(int folder, const std::string& target, const std::string& name) {
  const Descriptor found(openat(folder, target.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!found.is_open()) throw system_error(ErrorKind::cannot_create, name, errno);
  const struct stat info = status_of(found.get(), name);
  const mode_t mode = info.st_mode;
  if (S_ISREG(mode) || S_ISLNK(mode) || S_ISDIR(mode))
    throw path_error(ErrorKind::cannot_create, name, "was replaced while being opened");
  Descriptor opened = reopened(found, info, name, O_WRONLY);
  if (!opened.is_open()) throw system_error(ErrorKind::cannot_create, name, errno);
  return opened;
}

}  // namespace attn
