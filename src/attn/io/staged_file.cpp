#include "attn/io/staged_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "attn/base/printable.h"
#include "attn/io/file.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

Error refused(const std::string& path, const std::string& reason) {
  return Error(ErrorKind::cannot_create, Problem{.where = {path}, .message = reason});
}

bool is_input(const struct stat& target, const std::set<std::string>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](const std::string& input) {
    struct stat info {};
    return stat(input.c_str(), &info) == 0 && info.st_dev == target.st_dev &&
           info.st_ino == target.st_ino;
  });
}

mode_t mode_of_new_files() {
  static const mode_t mask = [] {
    const mode_t old = umask(077);  // it can only be read by setting it
    umask(old);
    return old;
  }();
  return 0666 & ~mask;
}

/// Gives a file without a name this one; false, with errno, where that fails. Without a privilege
/// (and before Linux 6.10) the file has to be found by the name that /proc has for it, which takes
/// longer.
bool link_descriptor(const Descriptor& file, const std::string& name) {
  static std::atomic<bool> by_number = true;
  if (by_number) {
    if (linkat(file.get(), "", AT_FDCWD, name.c_str(), AT_EMPTY_PATH) == 0) return true;
    if (errno == EEXIST) return false;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  if (linkat(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
  by_number = false;
  return true;
}

/// Gives `from` the name `to`; false, with errno EEXIST, when something has that name already.
bool rename_without_replacing(const char* from, const char* to) {
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // A file system (NFS) or kernel without that flag: a hard link never replaces anything either.
  return link(from, to) == 0 && unlink(from) == 0;
}

}  // namespace

StagedFile::StagedFile(const std::string& path, const OutputPolicy& policy)
    : path_(path),
      force_(policy.force || policy.ours.contains(path)),
      same_(policy.same),
      durable_(policy.durable) {
  open(policy);
}

StagedFile::~StagedFile() {
  if (temporary_) unlink(temporary_->path().c_str());
}

void StagedFile::open(const OutputPolicy& policy) {
  if (path_.find('\0') != std::string::npos) throw refused(path_, "a path cannot hold a NUL");
  const std::optional<int> number = path_ == "-" ? STDOUT_FILENO : descriptor_named(path_);
  if (path_ == "-") path_ = "standard output";
  if (number) return open_special(fcntl(*number, F_DUPFD_CLOEXEC, 3));
  target_ = path_;
  struct stat info {};
  int found = lstat(target_.c_str(), &info);
  if (found == 0 && S_ISLNK(info.st_mode)) {
    target_ = follow_links(path_);
    found = stat(target_.c_str(), &info);
  }
  if (found != 0) {
    if (errno != ENOENT) throw system_error(ErrorKind::cannot_create, path_, errno);
    if (policy.nameless && open_nameless()) return;
    mode_ = mode_of_new_files();
    return open_temporary();
  }
  if (S_ISDIR(info.st_mode)) throw refused(path_, "is a directory");
  if (!S_ISREG(info.st_mode))
    return open_special(::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (is_input(info, policy.inputs)) throw refused(path_, "is an input, too");
  if (!force_ && !same_) throw ExistsAlready(path_);
  mode_ = info.st_mode & 0777;
  open_temporary();
}

void StagedFile::open_temporary() {
  const fs::path folder = fs::path(target_).parent_path();
  const SignalShelter shelter;
  do {
    temporary_ = std::make_unique<TemporaryName>((folder / new_temporary_name()).string());
    file_ = Descriptor(::open(temporary_->path().c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  } while (!file_.is_open() && errno == EEXIST);
  if (file_.is_open()) return;
  const int code = errno;
  temporary_.reset();
  if (code == ENOENT) throw refused(path_, "there is no folder " + printable(folder.string()));
  throw system_error(ErrorKind::cannot_create, path_, code);
}

/// A file without a name has what a new file's mode is by itself, and is gone when it is closed or
/// the program ends. False where the file system, or a missing /proc, does not let it be named
/// later.
bool StagedFile::open_nameless() {
  static const bool can_be_named = access("/proc/self/fd", X_OK) == 0;
  if (!can_be_named) return false;
  const std::size_t slash = target_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target_.substr(0, slash + 1);
  file_ = Descriptor(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
  return nameless_ = file_.is_open();
}

void StagedFile::open_special(int fd) {
  file_ = Descriptor(fd);
  if (!file_.is_open()) throw system_error(ErrorKind::cannot_create, path_, errno);
}

void StagedFile::close() {
  // This fails where there are no modes, which loses nothing.
  if (temporary_) fchmod(file_.get(), mode_);
  if (is_staged() && durable_ && fsync(file_.get()) != 0)
    throw system_error(ErrorKind::io, path_, errno);
  // One without a name has to be held to be given one. That what was written is lost is told when
  // the first of its descriptors is closed.
  Descriptor held;
  if (nameless_) {
    held = Descriptor(fcntl(file_.get(), F_DUPFD_CLOEXEC, 3));
    if (!held.is_open()) throw system_error(ErrorKind::io, path_, errno);
  }
  if (!file_.close()) throw system_error(ErrorKind::io, path_, errno);
  file_ = std::move(held);
}

void StagedFile::settle(const std::string& digest) {
  if (force_ || !same_ || !is_staged() || access(target_.c_str(), F_OK) != 0) return;
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  if (read_file(target_, kAny, FileAccess::map).digest() != digest) throw ExistsAlready(path_);
  settled_ = true;
}

void StagedFile::give_name() {
  if (settled_ || !is_staged()) return;
  if (nameless_)
    link_nameless();
  else
    rename_temporary();
  if (durable_) sync_folder(path_, fs::path(target_).parent_path().string());
}

void StagedFile::rename_temporary() {
  const SignalShelter shelter;
  const char* const from = temporary_->path().c_str();
  const bool done =
      force_ ? rename(from, target_.c_str()) == 0 : rename_without_replacing(from, target_.c_str());
  if (!done && errno == EEXIST) throw ExistsAlready(path_);
  if (!done) throw system_error(ErrorKind::io, path_, errno);
  temporary_.reset();
}

void StagedFile::link_nameless() {
  const SignalShelter shelter;
  const auto link_to = [&](const std::string& name) { return link_descriptor(file_, name); };
  if (link_to(target_)) return;
  if (errno != EEXIST) throw system_error(ErrorKind::io, path_, errno);
  if (!force_) throw ExistsAlready(path_);
  // It has appeared meanwhile. A link replaces nothing, a renaming does.
  const std::string other = (fs::path(target_).parent_path() / new_temporary_name()).string();
  if (link_to(other) && rename(other.c_str(), target_.c_str()) == 0) return;
  const int code = errno;
  unlink(other.c_str());
  throw system_error(ErrorKind::io, path_, code);
}

}  // namespace attn
