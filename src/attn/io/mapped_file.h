// Files mapped into memory. All mappings of files are made here, so that each is watched: for
// truncation, which would end the program by SIGBUS, and for changes while it is used.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <memory>
#include <string>

#include "attn/io/open_file.h"

namespace attn {

/// Identifies a version of a file.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  timespec modified{};
};
FileStamp stamp_of(const struct stat& info);
bool operator==(const FileStamp& a, const FileStamp& b);

/// Errors: io, if `now`, the present status of the file, differs from `before`.
void require_unchanged(const std::string& name, const FileStamp& before, const struct stat& now);

/// Whether the file was last modified longer ago than the resolution of timestamps. Each later
/// change then has another timestamp.
bool is_settled(const struct stat& info);

/// The status of an open file, after waiting, for some milliseconds, until it is_settled(). Errors:
/// io.
struct stat settled_status(const Descriptor& file, const std::string& name);

/// Maps an open regular file of `info.st_size` bytes, read-only, and keeps its descriptor. Returns
/// null, and leaves the descriptor, if the system refuses or too many files are mapped; the file
/// must then be read. The mapping stays valid after the file is removed or replaced.
///
/// If the file is truncated or its disk fails, accessing the lost bytes ends the program:
/// unfinished outputs are removed, "attn: NAME: was truncated ..." is printed and the exit code is
/// ErrorKind::io. Batch runs, where other jobs must continue, read their files instead. If the file
/// is modified in place, the mapped bytes change; require_mapped_files_unchanged() detects that.
std::shared_ptr<const std::byte> map_file(Descriptor& file, const struct stat& info,
                                          const std::string& name);

/// Called before an output file gets its name and before the end of standard output is written
/// (io/staged_file.h), after the last use of mapped bytes. Errors: io, if a file was modified while
/// it was mapped. A file that is no longer mapped is reported once.
void require_mapped_files_unchanged();

/// Reads each page of a block for which a system call failed with EFAULT. If pages of a mapped file
/// are missing, this ends the program as described at map_file().
void touch_pages(const void* data, std::size_t size);

}  // namespace attn
