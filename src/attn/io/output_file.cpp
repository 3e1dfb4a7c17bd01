#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "attn/io/bytes.h"
#include "attn/io/descriptor.h"
#include "attn/io/digest.h"
#include "attn/io/file.h"
#include "attn/io/mapping.h"
#include "attn/io/temporaries.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kLarge = std::size_t{64}
                               << 10;  // to gather more would cost more than it saves
constexpr int kMostLinks = 40;         // as many as Linux follows

Error refused(const std::string& path, const std::string& reason) {
  return Error(ErrorKind::cannot_create, printable(path) + ": " + reason);
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

std::string path_of(const Descriptor& file) {
  return "/proc/self/fd/" + std::to_string(file.get());
}

/// Gives `from` the name `to`; false, with errno EEXIST, when something has that name already.
bool rename_without_replacing(const char* from, const char* to) {
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // A file system (NFS) or kernel without that flag: a hard link never replaces anything either.
  return link(from, to) == 0 && unlink(from) == 0;
}

}  // namespace

std::string follow_links(const std::string& path) {
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
  // EINVAL: a file system that cannot sync folders, as some network ones, keeps them in its own
  // way.
  if (!opened.is_open() || (fsync(opened.get()) != 0 && errno != EINVAL))
    throw system_error(ErrorKind::io, path, errno);
}

struct OutputFile::State {
  std::string path;    ///< as the user wrote it
  std::string target;  ///< what it names, after symbolic links
  bool force = false, same = false, durable = false, finished = false;
  mode_t mode = 0;
  Descriptor file;
  std::unique_ptr<TemporaryName> temporary;  ///< none where bytes go straight to their place
  bool nameless = false;                     ///< in place of a temporary name
  bool settled = false;                      ///< what stands there has the same bytes, and stays
  std::string buffer;
  std::optional<Digest> digest;

  void open(const OutputPolicy& policy);
  void open_temporary();
  bool open_nameless();
  void open_special(int fd);
  void flush();
  void write_through(std::string_view text);
  void write_all_at(std::uint64_t offset, std::span<iovec> parts);
  Error failure(int code, const void* data, std::size_t size) const;
  void close();
  void settle();
  void give_name();
  void give_first_name();
};

void OutputFile::State::open(const OutputPolicy& policy) {
  if (path.find('\0') != std::string::npos) throw refused(path, "a path cannot hold a NUL");
  const std::optional<int> number = path == "-" ? STDOUT_FILENO : descriptor_named(path);
  if (path == "-") path = "standard output";
  if (number) return open_special(fcntl(*number, F_DUPFD_CLOEXEC, 3));
  target = path;
  struct stat info {};
  int found = lstat(target.c_str(), &info);
  if (found == 0 && S_ISLNK(info.st_mode)) {
    target = follow_links(path);
    found = stat(target.c_str(), &info);
  }
  if (found != 0) {
    if (errno != ENOENT) throw system_error(ErrorKind::cannot_create, path, errno);
    if (policy.nameless && open_nameless()) return;
    mode = mode_of_new_files();
    return open_temporary();
  }
  if (S_ISDIR(info.st_mode)) throw refused(path, "is a directory");
  if (!S_ISREG(info.st_mode))
    return open_special(::open(target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (is_input(info, policy.inputs)) throw refused(path, "is an input, too");
  if (!force && !same) throw ExistsAlready(path);
  mode = info.st_mode & 0777;
  open_temporary();
}

void OutputFile::State::open_temporary() {
  const fs::path folder = fs::path(target).parent_path();
  const SignalShelter shelter;
  do {
    temporary = std::make_unique<TemporaryName>((folder / new_temporary_name()).string());
    file = Descriptor(::open(temporary->path().c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  } while (!file.is_open() && errno == EEXIST);
  if (file.is_open()) return;
  const int code = errno;
  temporary.reset();
  if (code == ENOENT) throw refused(path, "there is no folder " + printable(folder.string()));
  throw system_error(ErrorKind::cannot_create, path, code);
}

/// A file without a name has what a new file's mode is by itself, and is gone when it is closed or
/// the program ends. False where the file system, or a missing /proc, does not let it be named
/// later.
bool OutputFile::State::open_nameless() {
  static const bool can_be_named = access("/proc/self/fd", X_OK) == 0;
  if (!can_be_named) return false;
  const std::size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  file = Descriptor(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
  return nameless = file.is_open();
}

void OutputFile::State::open_special(int fd) {
  file = Descriptor(fd);
  if (!file.is_open()) throw system_error(ErrorKind::cannot_create, path, errno);
}

void OutputFile::State::flush() {
  write_through(buffer);
  buffer.clear();
}

void OutputFile::State::write_through(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EAGAIN) {
      wait_for(file.get(), POLLOUT);
    } else if (count == 0 || errno != EINTR) {
      if (count < 0 && errno == EPIPE) throw BrokenPipe{};
      throw failure(count == 0 ? EIO : errno, text.data(), text.size());
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

void OutputFile::State::write_all_at(std::uint64_t offset, std::span<iovec> parts) {
  while (!parts.empty()) {
    const ssize_t count = pwritev(file.get(), parts.data(), static_cast<int>(parts.size()),
                                  static_cast<off_t>(offset));
    if (count > 0) {
      parts = without(parts, static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    } else if (count == 0 || errno != EINTR) {
      throw failure(count == 0 ? EIO : errno, parts[0].iov_base, parts[0].iov_len);
    }
  }
}

/// Why `size` bytes at `data` cannot be written. Where they stand in a mapped input that was cut
/// short, they cannot even be looked at, and that is told.
Error OutputFile::State::failure(int code, const void* data, std::size_t size) const {
  if (code == EFAULT) look_at_pages(data, size);
  return system_error(ErrorKind::io, path, code);
}

void OutputFile::State::close() {
  if (temporary) fchmod(file.get(), mode);  // fails where there are no modes, which loses nothing
  if ((temporary || nameless) && durable && fsync(file.get()) != 0)
    throw system_error(ErrorKind::io, path, errno);
  // One without a name has to be held to be given one, but no longer to be written to.
  Descriptor held;
  if (nameless) {
    held = Descriptor(::open(path_of(file).c_str(), O_PATH | O_CLOEXEC));
    if (!held.is_open()) throw system_error(ErrorKind::io, path, errno);
  }
  if (!file.close()) throw system_error(ErrorKind::io, path, errno);
  file = std::move(held);
}

/// What stands there already may stay where it is what was written.
void OutputFile::State::settle() {
  if (force || !same || !(temporary || nameless) || access(target.c_str(), F_OK) != 0) return;
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  if (read_file(target, kAny, FileAccess::map).digest() != digest->text())
    throw ExistsAlready(path);
  settled = true;
}

void OutputFile::State::give_name() {
  const SignalShelter shelter;
  const char* const from = temporary->path().c_str();
  const bool done =
      force ? rename(from, target.c_str()) == 0 : rename_without_replacing(from, target.c_str());
  if (!done && errno == EEXIST) throw ExistsAlready(path);
  if (!done) throw system_error(ErrorKind::io, path, errno);
  temporary.reset();
}

void OutputFile::State::give_first_name() {
  const SignalShelter shelter;
  const std::string source = path_of(file);
  const auto link_to = [&](const std::string& name) {
    return linkat(AT_FDCWD, source.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_to(target)) return;
  if (errno != EEXIST) throw system_error(ErrorKind::io, path, errno);
  if (!force) throw ExistsAlready(path);
  // It has appeared meanwhile. A link replaces nothing, a renaming does.
  const std::string other = (fs::path(target).parent_path() / new_temporary_name()).string();
  if (link_to(other) && rename(other.c_str(), target.c_str()) == 0) return;
  const int code = errno;
  unlink(other.c_str());
  throw system_error(ErrorKind::io, path, code);
}

ExistsAlready::ExistsAlready(std::string where)
    : Error(refused(where, "exists already; --force replaces it")), path(std::move(where)) {}

OutputFile::OutputFile(const std::string& path, const OutputPolicy& policy)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->force = policy.force || policy.ours.contains(path);
  state_->same = policy.same;
  state_->durable = policy.durable;
  if (policy.digest) state_->digest.emplace();
  state_->open(policy);
}

OutputFile::OutputFile(OutputFile&&) noexcept = default;

OutputFile::~OutputFile() {
  if (state_ && state_->temporary) unlink(state_->temporary->path().c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) { write(text_of(bytes)); }

void OutputFile::write(std::string_view text) {
  State& state = *state_;
  if (state.digest) state.digest->add(bytes_of(text));
  if (state.buffer.size() + text.size() > kBufferBytes) state.flush();
  if (text.size() < kLarge) {
    state.buffer += text;
    return;
  }
  state.flush();
  state.write_through(text);
}

void OutputFile::flush() { state_->flush(); }

void OutputFile::reserve(std::uint64_t bytes) {
  int code = 0;
  do code = fallocate(state_->file.get(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  while (code == EINTR);
  // A file system that cannot tell beforehand tells when it is written to.
  if (code != 0 && code != EOPNOTSUPP && code != ENOSYS && code != EINVAL)
    throw system_error(ErrorKind::io, state_->path, code);
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) {
  constexpr std::size_t kAtOnce = 128;
  std::array<iovec, kAtOnce> vectors;
  while (!parts.empty()) {
    const auto some = parts.first(std::min(parts.size(), kAtOnce));
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      vectors[i] = {const_cast<std::byte*>(some[i].data()), some[i].size()};
      bytes += some[i].size();
    }
    state_->write_all_at(offset, {vectors.data(), some.size()});
    offset += bytes;
    parts = parts.subspan(some.size());
  }
}

void OutputFile::skip(std::uint64_t bytes) {
  state_->flush();
  if (lseek(state_->file.get(), static_cast<off_t>(bytes), SEEK_CUR) < 0)
    throw system_error(ErrorKind::io, state_->path, errno);
}

void OutputFile::finish() {
  if (std::exchange(state_->finished, true)) return;
  state_->flush();
  state_->close();
  state_->settle();
}

void OutputFile::commit() {
  finish();
  if (state_->settled) return;
  if (state_->nameless)
    state_->give_first_name();
  else if (state_->temporary)
    state_->give_name();
  else
    return;
  if (state_->durable) sync_folder(state_->path, fs::path(state_->target).parent_path().string());
}

const std::string& OutputFile::path() const { return state_->path; }

std::string OutputFile::digest() const { return state_->digest->text(); }

}  // namespace attn
