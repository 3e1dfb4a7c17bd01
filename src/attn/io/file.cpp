#include "attn/io/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "attn/base/printable.h"
#include "attn/io/bytes.h"
#include "attn/io/descriptor.h"
#include "attn/io/digest.h"

namespace attn {
namespace {

constexpr int kWriterMilliseconds = 2000;  // how long a FIFO may be without a writer
constexpr std::size_t kWorthMapping = std::size_t{128} << 10;  // less is read as quickly

Error refused(const std::string& name, const std::string& reason) {
  return Error(ErrorKind::no_input, Problem{.where = {name}, .message = reason});
}

bool is_null_device(const struct stat& info) {
  return S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
}

/// Refuses what has no end or is no file. `given` is a descriptor that the caller handed us, where
/// a terminal or a socket is as good as a pipe.
void require_readable(const std::string& name, int fd, const struct stat& info, bool given) {
  const mode_t mode = info.st_mode;
  if (S_ISREG(mode) || S_ISFIFO(mode) || is_null_device(info)) return;
  if (given && (S_ISSOCK(mode) || isatty(fd) == 1)) return;
  if (S_ISDIR(mode)) throw refused(name, "is a directory");
  throw refused(name, "is a device, not a file");
}

Descriptor open_input(const FileBytes& file, bool& given) {
  const std::string& path = file.path;
  if (path.find('\0') != std::string::npos) throw refused(path, "a path cannot hold a NUL");
  const std::optional<int> number = path == "-" ? STDIN_FILENO : descriptor_named(path);
  given = number.has_value();
  // O_NONBLOCK: opening a FIFO must not wait for ever for a writer.
  Descriptor input(given ? fcntl(*number, F_DUPFD_CLOEXEC, 3)
                         : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!input.is_open()) throw system_error(ErrorKind::no_input, file.name(), errno);
  return input;
}

[[noreturn]] void too_large(const FileBytes& file, std::size_t size, std::size_t most) {
  throw Error(ErrorKind::data, Problem{.where = {file.name()},
                                       .expected = "at most " + std::to_string(most) +
                                                   (most == 1 ? " byte" : " bytes"),
                                       .found = std::to_string(size) + " or more",
                                       .hint = "--max-memory sets how many are read"});
}

/// Reads to the end, or as far as `expected` bytes, where that is not 0; `capacity` is the room
/// that is there to begin with.
void read_to_end(FileBytes& file, int fd, std::size_t capacity, std::size_t most,
                 std::size_t expected) {
  std::shared_ptr<std::byte> buffer = allocate_bytes(capacity);
  for (;;) {
    if (file.size == capacity) {
      std::shared_ptr<std::byte> larger = allocate_bytes(2 * capacity);
      std::memcpy(larger.get(), buffer.get(), file.size);
      buffer = std::move(larger);
      capacity *= 2;
    }
    const ssize_t count = read(fd, buffer.get() + file.size, capacity - file.size);
    if (count > 0) {
      file.size += static_cast<std::size_t>(count);
      if (file.size > most) too_large(file, file.size, most);
      if (file.size == expected) break;
    } else if (count == 0) {
      break;
    } else if (errno == EAGAIN) {
      wait_for(fd, POLLIN);
    } else if (errno != EINTR) {
      throw system_error(ErrorKind::io, file.name(), errno);
    }
  }
  file.data = std::move(buffer);
}

struct stat status_of(int fd, const std::string& name) {
  struct stat info {};
  if (fstat(fd, &info) != 0) throw system_error(ErrorKind::io, name, errno);
  return info;
}

}  // namespace

FileBytes read_file(const std::string& path, std::size_t most, FileAccess access) {
  FileBytes file;
  file.path = path;
  const std::string name = file.name();
  bool given = false;
  const Descriptor input = open_input(file, given);
  const struct stat info = status_of(input.get(), name);
  require_readable(name, input.get(), info, given);
  const bool named_pipe = S_ISFIFO(info.st_mode) && !given;
  if (named_pipe) {
    pollfd ready{input.get(), POLLIN, 0};
    poll(&ready, 1, kWriterMilliseconds);
  }
  const auto size = S_ISREG(info.st_mode) ? static_cast<std::size_t>(info.st_size) : 0;
  if (size > most) too_large(file, size, most);
  if (access == FileAccess::map && !given && size >= kWorthMapping)
    file.data = map_file(input.get(), size, name);
  if (file.data != nullptr) {
    file.size = size;
    file.mapped = stamp_of(info);
    return file;
  }
  constexpr std::size_t kUnknown = 65536;
  const bool is_settled = S_ISREG(info.st_mode) && access != FileAccess::growing;
  try {
    // One byte more than a file has that grows meanwhile, so that its end is seen without a second
    // allocation.
    read_to_end(file, input.get(), size > 0 ? size + 1 : kUnknown, most, is_settled ? size : 0);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::data, Problem{.where = {name}, .message = "does not fit in memory"});
  }
  if (is_settled) require_unchanged(name, stamp_of(info), status_of(input.get(), name));
  if (named_pipe && file.size == 0) throw refused(path, "is a FIFO that nobody writes to");
  return file;
}

std::string FileBytes::digest() const {
  return known_digest.empty() ? digest_of(bytes()) : known_digest;
}

}  // namespace attn
