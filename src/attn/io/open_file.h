// Opens inputs and special outputs (pipes and devices); owns file descriptors; classifies paths.
// Regular outputs: io/staged_file.h.
//
// A file is first opened with O_PATH, which has no side effects, and checked; then it is opened for
// reading or writing through /proc/self/fd. The checked file is therefore the one that is used,
// even if the path has been replaced in the meantime.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <utility>

#include "attn/base/error.h"

namespace attn {

/// Owns a file descriptor.
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
  bool close();  ///< false, with errno, if the system reports that written data was lost

 private:
  int fd_;
};

/// N of /dev/fd/N or /proc/self/fd/N; 0 to 2 of /dev/stdin, /dev/stdout and /dev/stderr. Such a
/// path is not opened, because that would start at the beginning of the file; the descriptor is
/// copied.
std::optional<int> descriptor_named(const std::string& path);

/// Whether reading the path consumes standard input: "-", a name of descriptor 0, or another path
/// to the same pipe, socket or terminal. (A regular file can be opened a second time.)
bool is_standard_input(const std::string& path);

/// Whether a path names an open descriptor ("-" is standard output), a device or a pipe. Bytes are
/// written to these directly, and their names have no suffix that states the format.
bool is_stream(const std::string& path);

/// The end of a chain of symbolic links, which need not exist. For a loop the result is still a
/// link, for which stat() reports the error.
std::string follow_links(const std::string& path);

/// "PATH: reason" for errno `code`. The kind is `permission` for EACCES and EPERM, `data` for
/// ENOMEM, otherwise `kind`.
Error system_error(ErrorKind kind, const std::string& path, int code);

/// "PATH: message".
Error path_error(ErrorKind kind, const std::string& path, const std::string& message);

/// The status of an open file. Errors: io, with its name.
struct stat status_of(int fd, const std::string& name);

/// Waits until `fd`, which returned EAGAIN, can be read (`events` = POLLIN) or written (POLLOUT).
void wait_for(int fd, short events);

/// Opens standard streams that were closed at program start, such that reading or writing them
/// fails with EBADF. Otherwise the next opened file would get such a number, and messages would be
/// written into results. Call before any file is opened.
void occupy_closed_streams();

/// Closes the regular files that attn has open for writing, in a forked process that does not use
/// them.
void close_files_being_written();

struct OpenInput {
  std::string name;  ///< for errors
  Descriptor descriptor;
  struct stat info {};
  bool inherited = false;  ///< a descriptor of our parent's, at its present offset
};

/// "-" and /dev/stdin are standard input, /dev/fd/N the inherited descriptor N; a descriptor that
/// attn itself has opened is refused. A FIFO is opened without waiting for a writer. Errors:
/// no_input (missing, a directory, a device other than /dev/null), permission.
OpenInput open_input(const std::string& path);

/// A copy of the inherited descriptor `fd`. Errors: `kind`, if it is not open or was opened by
/// attn.
Descriptor inherited_descriptor(int fd, const std::string& name, ErrorKind kind);

/// A pipe or device for writing; a FIFO waits for its reader. `target`, relative to `folder` as for
/// openat(), is not followed if it is a symbolic link. `name` is its path as the user wrote it.
/// Errors: cannot_create, also for a regular file; permission.
Descriptor open_special_output(int folder, const std::string& target, const std::string& name);

}  // namespace attn
