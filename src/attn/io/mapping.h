// Memory-mapped input files.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <memory>
#include <string>

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

/// Accesses bytes for which a system call failed with EFAULT. If they are lost bytes of a mapped
/// file, that ends the program as described above.
void look_at_pages(const void* data, std::size_t size);

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

}  // namespace attn
