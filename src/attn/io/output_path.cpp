#include "attn/io/output_path.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "attn/base/text.h"

namespace attn {
namespace {

constexpr int kFolder = O_PATH | O_DIRECTORY | O_CLOEXEC;

/// The confined folder. Plain data, because a signal handler uses it.
struct Root {
  int descriptor = -1;
  std::size_t length = 0;  ///< of the prefix: the folder and '/'
  std::array<char, PATH_MAX> prefix = {};
};
constinit Root output_root = {};

bool has_parent_component(std::string_view path) {
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (path.substr(0, end) == "..") return true;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return false;
}

/// The part of a confined path below the folder; "" for other paths.
std::string_view confined_part(std::string_view path) noexcept {
  if (output_root.length == 0 || !path.starts_with({output_root.prefix.data(), output_root.length}))
    return {};
  const std::string_view rest = path.substr(output_root.length);
  return has_parent_component(rest) ? std::string_view() : rest;
}

/// The folder and the name of an entry: "a/b/c" and "a/b/c/" give "a/b" and "c".
std::pair<std::string_view, std::string_view> split(std::string_view path) noexcept {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {{}, path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

/// For kernels before Linux 5.6: opens one folder after the other.
int open_each_beneath(char* path) noexcept {
  int folder = fcntl(output_root.descriptor, F_DUPFD_CLOEXEC, 3);
  char* rest = nullptr;
  for (const char* part = strtok_r(path, "/", &rest); part != nullptr && folder >= 0;
       part = strtok_r(nullptr, "/", &rest)) {
    const int next = openat(folder, part, kFolder | O_NOFOLLOW);
    const int code = errno;
    close(folder);
    errno = code;
    folder = next;
  }
  return folder;
}

/// The folder at a path without ".." below the confined one; -1 on failure.
int open_beneath(std::string_view path) noexcept {
  std::array<char, PATH_MAX> text;
  if (path.size() >= text.size()) return errno = ENAMETOOLONG, -1;
  *std::copy(path.begin(), path.end(), text.begin()) = '\0';
  open_how how{};
  how.flags = kFolder;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long folder = -1;
  constexpr int kAttempts = 100;  // EAGAIN: a folder was renamed meanwhile
  for (int attempt = 0; folder < 0 && attempt < kAttempts; ++attempt) {
    folder = syscall(SYS_openat2, output_root.descriptor, text.data(), &how, sizeof how);
    if (folder < 0 && errno != EAGAIN) break;
  }
  const bool is_unknown = folder < 0 && (errno == ENOSYS || errno == EPERM);
  return is_unknown ? open_each_beneath(text.data()) : static_cast<int>(folder);
}

/// The first part of a confined path that is a link, or "".
std::string first_link(const std::string& path) {
  for (std::size_t end = output_root.length; end != std::string::npos;) {
    end = path.find('/', end + 1);
    std::string part = path.substr(0, end);
    struct stat info {};
    if (lstat(part.c_str(), &info) != 0) return "";
    if (S_ISLNK(info.st_mode)) return part;
  }
  return "";
}

/// Never destroyed: signal handlers use the descriptor until the end.
std::shared_ptr<const Descriptor>& root_folder() {
  static auto* const folder = new std::shared_ptr<const Descriptor>;
  return *folder;
}

}  // namespace

int OutputEntry::at() const { return folder ? folder->get() : AT_FDCWD; }

OutputEntry OutputEntry::beside(const std::string& other) const {
  return {folder, name.substr(0, name.rfind('/') + 1) + other};
}

void confine_outputs(const std::string& folder) {
  Descriptor opened(open(folder.c_str(), kFolder));
  const std::string prefix = folder + "/";
  if (opened.is_open() && prefix.size() >= output_root.prefix.size()) errno = ENAMETOOLONG;
  if (!opened.is_open() || prefix.size() >= output_root.prefix.size())
    throw system_error(ErrorKind::cannot_create, folder, errno);
  root_folder() = std::make_shared<const Descriptor>(std::move(opened));
  std::copy(prefix.begin(), prefix.end(), output_root.prefix.begin());
  output_root.descriptor = root_folder()->get();
  output_root.length = prefix.size();
}

Error link_error(const std::string& path) {
  return path_error(ErrorKind::cannot_create, path,
                    "is a symbolic link, which can lead out of the output folder");
}

OutputEntry output_entry(const std::string& path) {
  const std::string_view below = confined_part(path);
  if (below.empty()) return {nullptr, path};
  const auto [folder, name] = split(below);
  if (folder.empty()) return {root_folder(), std::string(name)};
  if (const int opened = open_beneath(folder); opened >= 0)
    return {std::make_shared<const Descriptor>(opened), std::string(name)};
  const int code = errno;
  const std::string parent = path.substr(0, output_root.length + folder.size());
  if (code == ELOOP || code == ENOTDIR)
    if (const std::string link = first_link(parent); !link.empty()) throw link_error(link);
  if (code == ENOENT)
    throw path_error(ErrorKind::cannot_create, path, "there is no folder " + printable(parent));
  throw system_error(ErrorKind::cannot_create, path, code);
}

void sync_folder_of(const OutputEntry& entry, const std::string& path) {
  const std::string folder = entry.beside("").name;
  const Descriptor opened(openat(entry.at(), folder.empty() ? "." : folder.c_str(),
                                 O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: a file system, such as some network ones, that cannot sync directories.
  if (!opened.is_open() || (fsync(opened.get()) != 0 && errno != EINVAL))
    throw system_error(ErrorKind::io, path, errno);
}

Descriptor open_output(const std::string& path, int flags, mode_t mode) {
  const OutputEntry entry = output_entry(path);
  if (entry.is_confined()) flags |= O_NOFOLLOW;
  Descriptor opened(openat(entry.at(), entry.name.c_str(), flags | O_CLOEXEC, mode));
  if (!opened.is_open() && errno == ELOOP && entry.is_confined()) throw link_error(path);
  return opened;
}

OpenInput open_result(const std::string& path) {
  if (confined_part(path).empty()) return open_input(path);
  OpenInput input;
  input.name = path;
  input.descriptor = open_output(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!input.descriptor.is_open() || fstat(input.descriptor.get(), &input.info) != 0)
    throw system_error(ErrorKind::no_input, path, errno);
  if (!S_ISREG(input.info.st_mode))
    throw path_error(ErrorKind::no_input, path, "is not a regular file");
  return input;
}

bool remove_output(const char* path, PathKind kind) noexcept {
  const int flags = kind == PathKind::folder ? AT_REMOVEDIR : 0;
  const std::string_view below = confined_part(path);
  if (below.empty()) return unlinkat(AT_FDCWD, path, flags) == 0;
  const auto [folder, name] = split(below);
  const int opened = folder.empty() ? output_root.descriptor : open_beneath(folder);
  if (opened < 0) return false;
  const bool removed = unlinkat(opened, path + (name.data() - path), flags) == 0;
  const int code = errno;
  if (opened != output_root.descriptor) close(opened);
  errno = code;
  return removed;
}

}  // namespace attn
