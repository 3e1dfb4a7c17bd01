// What reading and writing files share: descriptors that close themselves, what paths name, and
// what errno means.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "attn/base/error.h"

namespace attn {

/// Closes its file descriptor at the end of its life.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  bool close();  ///< false, with errno, when the system reports that what was written is lost

 private:
  int fd_;
};

/// The descriptor that /dev/stdin, /dev/stdout, /dev/stderr, /dev/fd/N or /proc/self/fd/N names.
/// It is used as it is, for opening such a name anew would start at the file's beginning.
std::optional<int> descriptor_named(const std::string& path);

/// Whether to read what a path names is to take it from standard input: "-", a name of descriptor
/// 0, or any other way to the same pipe, socket or terminal. (A regular file that is opened anew
/// begins at its start, and takes nothing from anybody.)
bool is_standard_input(const std::string& path);

/// Whether a path names an open descriptor ("-" is standard output), a device or a pipe: bytes are
/// written there as they come, and no suffix says what they are.
bool is_stream(const std::string& path);

/// Where a chain of symbolic links ends, which need not exist. A circle stays a link, and stat()
/// then names the fault.
std::string follow_links(const std::string& path);

/// Has the names in a folder outlast a power cut. Errors: io, naming `path`, for which it is done.
void sync_folder(const std::string& path, const std::string& folder);

/// "PATH: reason" for errno `code`: `permission` where that is the reason, `data` for a lack of
/// memory, otherwise `kind`.
Error system_error(ErrorKind kind, const std::string& path, int code);

/// Waits until `fd`, which answered EAGAIN, can be read (`events` = POLLIN) or written (POLLOUT).
void wait_for(int fd, short events);

/// Standard input, output and error that were closed when the program began become ones that refuse
/// every byte (EBADF): otherwise the next file to be opened would take such a number, and notes
/// would be written into results. To be called before any file is opened.
void occupy_closed_streams();

}  // namespace attn
