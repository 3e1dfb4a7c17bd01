// Regular files as memory, brought in page by page as they are looked at.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <memory>
#include <string>

namespace attn {

/// The first `size` bytes of an open regular file, read-only; nothing when the system refuses to
/// map it, and it is to be read. They stay after `fd` is closed and the file is removed or
/// replaced.
///
/// Where the file is cut short meanwhile, or its disk fails, the bytes that are lost cannot be had:
/// looking at them ends the program at once with a line "attn: NAME: was cut short ...", after
/// unfinished outputs are removed, and exit code ErrorKind::io. That suits a program with one job;
/// one that has others to go on with reads its files. A file that is rewritten in place changes
/// under us: `require_unchanged` tells.
std::shared_ptr<const std::byte> map_file(int fd, std::size_t size, const std::string& name);

/// Looks at bytes of which the system said that it cannot: where they are those of a mapped file
/// that were lost, that ends the program as above.
void look_at_pages(const void* data, std::size_t size);

/// What tells whether a file's bytes are still those that were there.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  timespec modified{};
};
FileStamp stamp_of(const struct stat& info);

/// Errors: io, where the file that still has this path was written to since. One that was replaced
/// by another, or removed, is no error: its bytes are as they were.
void require_unchanged(const std::string& path, const FileStamp& before);
/// The same of what is known of the file now.
void require_unchanged(const std::string& name, const FileStamp& before, const struct stat& now);

}  // namespace attn
