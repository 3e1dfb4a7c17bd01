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
#include "attn/io/open_file.h"

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
    const mode_t old = umask(077);  // can only be read by setting it
    umask(old);
    return old;
  }();
  return 0666 & ~mask;
}

/// Links an O_TMPFILE file as `name`; false, with errno, on failure. Without a privilege (before
/// Linux 6.10) this needs the slower way through /proc.
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

/// Renames `from` to `to`; false, with errno EEXIST, if `to` exists.
bool rename_without_replacing(const char* from, const char* to) {
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // A file system (NFS) or kernel without that flag. link() does not replace files either.
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
  if (number) {
    file_ = inherited_descriptor(*number, path_, ErrorKind::cannot_create);
    return;
  }
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
  if (!S_ISREG(info.st_mode)) {
    file_ = open_special_output(target_, path_);
    return;
  }
  if (is_input(info, policy.inputs)) throw refused(path_, "is an input and cannot be overwritten");
  if (!force_ && !same_) throw ExistsAlready(path_);
  mode_ = info.st_mode & 0777;
  open_temporary();
}

void StagedFile::open_temporary() {
  const fs::path folder = fs::path(target_).parent_path();
  const SignalGuard guard;
  do {
    temporary_ = std::make_unique<TempPath>((folder / new_temp_name()).string());
    file_ = Descriptor(::open(temporary_->path().c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  } while (!file_.is_open() && errno == EEXIST);
  if (file_.is_open()) return;
  const int code = errno;
  temporary_.reset();
  if (code == ENOENT) throw refused(path_, "there is no folder " + printable(folder.string()));
  throw system_error(ErrorKind::cannot_create, path_, code);
}

/// An O_TMPFILE file has the mode of a new file and disappears when it is closed. Returns false if
/// the file system does not support it, or if /proc, which link_descriptor() needs, is missing.
bool StagedFile::open_nameless() {
  static const bool can_be_named = access("/proc/self/fd", X_OK) == 0;
  if (!can_be_named) return false;
  const std::size_t slash = target_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target_.substr(0, slash + 1);
  file_ = Descriptor(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
  return nameless_ = file_.is_open();
}

void StagedFile::close() {
  // Fails on file systems without modes, which is harmless.
  if (temporary_) fchmod(file_.get(), mode_);
  if (is_staged() && durable_ && fsync(file_.get()) != 0)
    throw system_error(ErrorKind::io, path_, errno);
  // An O_TMPFILE file must stay open until it is linked. Closing one of two descriptors reports
  // lost data.
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
  const SignalGuard guard;
  const char* const from = temporary_->path().c_str();
  const bool done =
      force_ ? rename(from, target_.c_str()) == 0 : rename_without_replacing(from, target_.c_str());
  if (!done && errno == EEXIST) throw ExistsAlready(path_);
  if (!done) throw system_error(ErrorKind::io, path_, errno);
  temporary_.reset();
}

void StagedFile::link_nameless() {
  const SignalGuard guard;
  const auto link_to = [&](const std::string& name) { return link_descriptor(file_, name); };
  if (link_to(target_)) return;
  if (errno != EEXIST) throw system_error(ErrorKind::io, path_, errno);
  if (!force_) throw ExistsAlready(path_);
  // The name has appeared meanwhile. rename() replaces it, link() cannot.
  const std::string other = (fs::path(target_).parent_path() / new_temp_name()).string();
  if (link_to(other) && rename(other.c_str(), target_.c_str()) == 0) return;
  const int code = errno;
  unlink(other.c_str());
  throw system_error(ErrorKind::io, path_, code);
}

}  // namespace attn
