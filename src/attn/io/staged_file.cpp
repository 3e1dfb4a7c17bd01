#include "attn/io/staged_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "attn/base/text.h"
#include "attn/io/elements.h"
#include "attn/io/file.h"
#include "attn/io/mapped_file.h"
#include "attn/io/open_file.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

constinit bool modes_at_creation = false;

/// Links an O_TMPFILE file as `to`; false, with errno, on failure. Without a privilege (before
/// Linux 6.10) this needs the slower way through /proc.
bool link_descriptor(const Descriptor& file, const OutputEntry& to) {
  static std::atomic<bool> by_number = true;
  const char* const name = to.name.c_str();
  if (by_number) {
    if (linkat(file.get(), "", to.at(), name, AT_EMPTY_PATH) == 0) return true;
    if (errno == EEXIST) return false;
  }
  char path[32];  // no memory is allocated between the files of a result
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file.get());
  if (linkat(AT_FDCWD, path, to.at(), name, AT_SYMLINK_FOLLOW) != 0) return false;
  by_number = false;
  return true;
}

/// Renames an entry within its folder; false, with errno, on failure.
bool rename_entry(const OutputEntry& from, const OutputEntry& to) {
  return renameat(from.at(), from.name.c_str(), to.at(), to.name.c_str()) == 0;
}

/// The same, but with errno EEXIST if `to` exists.
bool rename_without_replacing(const OutputEntry& from, const OutputEntry& to) {
  const char *const old_name = from.name.c_str(), *const name = to.name.c_str();
  if (renameat2(from.at(), old_name, to.at(), name, RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // A file system (NFS) or kernel without that flag. linkat() does not replace files either.
  return linkat(from.at(), old_name, to.at(), name, 0) == 0 &&
         unlinkat(from.at(), old_name, 0) == 0;
}

}  // namespace

void set_modes_at_creation() {
  mode_of_new(0);  // notes the umask
  umask(0);
  modes_at_creation = true;
}

StagedFile::StagedFile(const std::string& path, const OutputPolicy& policy)
    : path_(path),
      force_(policy.force || policy.ours.contains(path)),
      same_(policy.same),
      durable_(policy.durable) {
  open(policy);
}

StagedFile::StagedFile(const SharedRegion& region)
    : path_(region.path), force_(false), same_(false), durable_(region.place.durable) {
  joined_ = true;
  file_ = Descriptor(::open(region.temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  const std::string name = printable(region.temporary);
  if (!file_.is_open()) {
    const Error reason = system_error(ErrorKind::cannot_create, name, errno);
    throw Error(reason.kind(),
                Problem{.where = {path_, name},
                        .message = reason.problems()[0].message,
                        .hint = "the folder of an output must be the same on all ranks"});
  }
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) throw system_error(ErrorKind::io, path_, errno);
  if (!S_ISREG(info.st_mode) || info.st_ino != region.place.inode)
    throw Error(ErrorKind::io,
                Problem{.where = {path_, name}, .message = "is another file here than on rank 0"});
}

SharedRegion StagedFile::shared() const {
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) throw system_error(ErrorKind::io, path_, errno);
  SharedRegion region;
  region.path = path_;
  region.temporary = fs::absolute(temporary_->path()).string();
  region.place.inode = info.st_ino;
  region.place.durable = durable_;
  return region;
}

StagedFile::~StagedFile() {
  if (temporary_) remove_temporary();
}

void StagedFile::open(const OutputPolicy& policy) {
  if (path_.find('\0') != std::string::npos)
    throw path_error(ErrorKind::cannot_create, path_, "a path cannot contain a NUL");
  const std::optional<int> number = path_ == "-" ? STDOUT_FILENO : descriptor_named(path_);
  if (path_ == "-") path_ = "standard output";
  if (number) {
    file_ = inherited_descriptor(*number, path_, ErrorKind::cannot_create);
    return;
  }
  target_ = output_entry(path_);
  struct stat info {};
  int found = fstatat(target_.at(), target_.name.c_str(), &info, AT_SYMLINK_NOFOLLOW);
  if (found == 0 && S_ISLNK(info.st_mode)) {
    if (target_.is_confined()) throw link_error(path_);
    target_.name = follow_links(path_);
    found = stat(target_.name.c_str(), &info);
  }
  if (found != 0) {
    if (errno != ENOENT) throw system_error(ErrorKind::cannot_create, path_, errno);
    claim_.emplace(target_, path_);
    if (policy.nameless && open_nameless()) return;
    mode_ = mode_of_new(0666);
    return open_temporary();
  }
  if (S_ISDIR(info.st_mode)) throw path_error(ErrorKind::cannot_create, path_, "is a directory");
  if (!S_ISREG(info.st_mode)) {
    file_ = open_special_output(target_.at(), target_.name, path_);
    return;
  }
  claim_.emplace(target_, path_);
  require_unused(id_of(info), path_);
  if (!force_ && !same_) throw ExistsAlready(path_);
  mode_ = info.st_mode & 0777;
  open_temporary();
}

void StagedFile::open_temporary() {
  const SignalGuard guard;
  do {
    temporary_entry_ = target_.beside(new_temp_name());
    temporary_ = std::make_unique<TempPath>(path_beside(temporary_entry_));
    file_ = Descriptor(openat(temporary_entry_.at(), temporary_entry_.name.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                              modes_at_creation ? mode_ : 0600));
  } while (!file_.is_open() && errno == EEXIST);
  if (file_.is_open()) return;
  const int code = errno;
  temporary_.reset();
  if (code == ENOENT)
    throw path_error(
        ErrorKind::cannot_create, path_,
        "there is no folder " + printable(fs::path(target_.name).parent_path().string()));
  throw system_error(ErrorKind::cannot_create, path_, code);
}

/// The path of another entry of the target's folder.
std::string StagedFile::path_beside(const OutputEntry& entry) const {
  return entry.is_confined() ? path_.substr(0, path_.rfind('/') + 1) + entry.name : entry.name;
}

void StagedFile::remove_temporary() {
  unlinkat(temporary_entry_.at(), temporary_entry_.name.c_str(), 0);
}

/// An O_TMPFILE file has the mode of a new file and disappears when it is closed. Returns false if
/// the file system does not support it, or if /proc, which link_descriptor() needs, is missing.
bool StagedFile::open_nameless() {
  static const bool can_be_named = access("/proc/self/fd", X_OK) == 0;
  if (!can_be_named) return false;
  const std::string folder = target_.beside("").name;
  file_ = Descriptor(openat(target_.at(), folder.empty() ? "." : folder.c_str(),
                            O_WRONLY | O_TMPFILE | O_CLOEXEC, mode_of_new(0666)));
  return nameless_ = file_.is_open();
}

/// Inputs may have been read, and other outputs written, since the file was opened.
void StagedFile::require_replaceable() const {
  struct stat info {};
  if (force_ && is_staged() && !settled_ &&
      fstatat(target_.at(), target_.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
    require_unused(id_of(info), path_);
}

void StagedFile::close() {
  require_replaceable();
  // Fails on file systems without modes, which is harmless.
  if (temporary_ && !modes_at_creation) fchmod(file_.get(), mode_);
  if ((is_staged() || joined_) && durable_ && fsync(file_.get()) != 0)
    throw system_error(ErrorKind::io, path_, errno);
  // Here rather than in give_name(), because it can run out of memory. Confined outputs are those
  // of a batch, which have different names and are not links.
  struct stat info {};
  if (is_staged() && !target_.is_confined() && fstat(file_.get(), &info) == 0) note_output(info);
  // An O_TMPFILE file must stay open until it is linked. Closing one of two descriptors still
  // reports lost data.
  Descriptor held;
  if (nameless_) {
    held = Descriptor(fcntl(file_.get(), F_DUPFD_CLOEXEC, 3));
    if (!held.is_open()) throw system_error(ErrorKind::io, path_, errno);
  }
  if (!file_.close()) throw system_error(ErrorKind::io, path_, errno);
  file_ = std::move(held);
}

void StagedFile::settle(const std::string& digest) {
  if (force_ || !same_ || !is_staged() ||
      faccessat(target_.at(), target_.name.c_str(), F_OK, 0) != 0)
    return;
  if (digest_of_file(open_result(path_)) != digest) throw ExistsAlready(path_);
  settled_ = true;
}

void StagedFile::give_name() {
  if (settled_ || !is_staged()) return;
  require_replaceable();
  if (nameless_)
    link_nameless();
  else
    rename_temporary();
  if (durable_) sync_folder_of(target_, path_);
}

void StagedFile::rename_temporary() {
  const SignalGuard guard;
  const bool done = force_ ? rename_entry(temporary_entry_, target_)
                           : rename_without_replacing(temporary_entry_, target_);
  if (!done && errno == EEXIST) throw ExistsAlready(path_);
  if (!done) throw system_error(ErrorKind::io, path_, errno);
  temporary_.reset();
}

void StagedFile::link_nameless() {
  const SignalGuard guard;
  if (link_descriptor(file_, target_)) return;
  if (errno != EEXIST) throw system_error(ErrorKind::io, path_, errno);
  if (!force_) throw ExistsAlready(path_);
  // The name has been created in the meantime. rename() can replace it, link() cannot.
  const OutputEntry other = target_.beside(new_temp_name());
  if (link_descriptor(file_, other) && rename_entry(other, target_)) return;
  const int code = errno;
  unlinkat(other.at(), other.name.c_str(), 0);
  throw system_error(ErrorKind::io, path_, code);
}

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kLarge = std::size_t{64}
                               << 10;  // buffering larger writes costs more than it saves

/// The error for a failed write of `size` bytes at `data`. If they belong to a mapped input that
/// was cut short, that is reported instead.
Error failure(const StagedFile& file, int code, const void* data, std::size_t size) {
  if (code == EFAULT) touch_pages(data, size);
  return system_error(ErrorKind::io, file.path(), code);
}

void write_all(const StagedFile& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file.descriptor(), text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EAGAIN) {
      wait_for(file.descriptor(), POLLOUT);
    } else if (count == 0 || errno != EINTR) {
      if (count < 0 && errno == EPIPE) throw BrokenPipe{};
      throw failure(file, count == 0 ? EIO : errno, text.data(), text.size());
    }
  }
}

/// Takes `count` bytes off the front.
std::span<iovec> without(std::span<iovec> parts, std::size_t count) {
  while (!parts.empty() && count >= parts[0].iov_len) {
    count -= parts[0].iov_len;
    parts = parts.subspan(1);
  }
  if (count > 0)
    parts[0] = {static_cast<std::byte*>(parts[0].iov_base) + count, parts[0].iov_len - count};
  return parts;
}

void write_all_at(const StagedFile& file, std::uint64_t offset, std::span<iovec> parts) {
  while (!parts.empty()) {
    const ssize_t count = pwritev(file.descriptor(), parts.data(), static_cast<int>(parts.size()),
                                  static_cast<off_t>(offset));
    if (count > 0) {
      parts = without(parts, static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    } else if (count == 0 || errno != EINTR) {
      throw failure(file, count == 0 ? EIO : errno, parts[0].iov_base, parts[0].iov_len);
    }
  }
}

}  // namespace

OutputFile::OutputFile(const std::string& path, const OutputPolicy& policy) : file_(path, policy) {
  if (policy.digest) digest_.emplace();
}

void OutputFile::write(std::span<const std::byte> bytes) { write(text_of(bytes)); }

void OutputFile::write(std::string_view text) {
  if (digest_) digest_->add(bytes_of(text));
  if (buffer_.size() + text.size() > kBufferBytes) flush();
  if (text.size() < kLarge) {
    buffer_ += text;
    return;
  }
  flush();
  write_all(file_, text);
}

void OutputFile::flush() {
  write_all(file_, buffer_);
  buffer_.clear();
}

void OutputFile::reserve(std::uint64_t bytes) {
  int code = 0;
  do code = fallocate(file_.descriptor(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  while (code == EINTR);
  // Other file systems report a full disk when they are written to.
  if (code != 0 && code != EOPNOTSUPP && code != ENOSYS && code != EINVAL)
    throw system_error(ErrorKind::io, path(), code);
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) {
  constexpr std::size_t kMaxParts = 128;
  std::array<iovec, kMaxParts> vectors;
  while (!parts.empty()) {
    const auto some = parts.first(std::min(parts.size(), kMaxParts));
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      vectors[i] = {const_cast<std::byte*>(some[i].data()), some[i].size()};
      bytes += some[i].size();
    }
    write_all_at(file_, offset, {vectors.data(), some.size()});
    offset += bytes;
    parts = parts.subspan(some.size());
  }
}

void OutputFile::skip(std::uint64_t bytes) {
  flush();
  if (lseek(file_.descriptor(), static_cast<off_t>(bytes), SEEK_CUR) < 0)
    throw system_error(ErrorKind::io, path(), errno);
}

void OutputFile::finish() {
  if (finished_) return;
  require_mapped_files_unchanged();
  flush();
  file_.close();
  if (digest_) file_.settle(digest());
  finished_ = true;
}

void OutputFile::commit() {
  finish();
  file_.give_name();
}

}  // namespace attn
