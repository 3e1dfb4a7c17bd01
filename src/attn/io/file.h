// Whole input files as bytes, memory-mapped or read.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Maps the first `size` bytes of an open regular file, read-only. Returns null if the system
/// refuses; the file must then be read. The mapping stays valid after `fd` is closed and after the
/// file is removed or replaced.
///
/// If the file is truncated or its disk fails, accessing the lost bytes ends the program:
/// unfinished outputs are removed, "attn: NAME: was cut short ..." is printed and the exit code is
/// ErrorKind::io. Batch runs, where other jobs must continue, read their files instead. If the file
/// is modified in place, the mapped bytes change; require_unchanged() detects that.
std::shared_ptr<const std::byte> map_file(int fd, std::size_t size, const std::string& name);

/// Reads each page of a block for which a system call failed with EFAULT. If pages of a mapped file
/// are missing, this ends the program as described at map_file().
void touch_pages(const void* data, std::size_t size);

/// Identifies a version of a file.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  timespec modified{};
};
FileStamp stamp_of(const struct stat& info);

/// Errors: io, if the file was modified since `before`. It is no error if the path was removed or
/// now names another file: the mapped bytes are unchanged.
void require_unchanged(const std::string& path, const FileStamp& before);
/// The same with the present status of the file.
void require_unchanged(const std::string& name, const FileStamp& before, const struct stat& now);

/// The bytes of one input, aligned to 64 so that tensors can share them.
struct FileBytes {
  std::string path;  ///< as the user wrote it; "-" is standard input
  std::shared_ptr<const std::byte> data;
  std::size_t size = 0;
  std::string known_digest = {};         ///< precomputed if the bytes are shared by several jobs
  std::optional<FileStamp> mapped = {};  ///< set if the file is mapped, not copied
  std::string digest() const;            ///< io/digest.h
  std::string name() const { return path == "-" ? "standard input" : path; }  ///< for errors
  std::span<const std::byte> bytes() const { return {data.get(), size}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data.get()), size}; }
  /// Takes a part of a mapped file out of memory. It is read again when it is used.
  void release_pages(std::span<const std::byte> part) const;
  /// Errors: io, if the file is mapped and was modified since.
  void require_unchanged() const {
    if (mapped) attn::require_unchanged(path, *mapped);
  }
};

/// read: copy the file. map: map large regular files into memory (map_file()). map_part: likewise,
/// even those of more than `max_bytes`, because only parts of them are used. growing: copy the
/// present contents, even if another program appends to the file.
enum class FileAccess { read, map, map_part, growing };

/// Reads a regular file, up to the size it has when opened, or a pipe: "-" or /dev/stdin (standard
/// input), /dev/fd/N, or a FIFO, which must have a writer within two seconds. /dev/null is empty;
/// other devices and sockets are refused (io/open_file.h). Errors: no_input (missing, a directory,
/// a device); permission; io, also if the file was modified while it was read; data, for more than
/// `max_bytes` bytes. At most one copy of the file is in memory.
FileBytes read_file(const std::string& path,
                    std::size_t max_bytes = std::numeric_limits<std::size_t>::max(),
                    FileAccess access = FileAccess::read);

/// Throws Error(data) for invalid file contents. `where` is the file, then the part of it.
[[noreturn]] void fail_at(std::vector<std::string> where, std::string message);

}  // namespace attn
