// Whole input files as bytes, memory-mapped or read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/io/mapped_file.h"
#include "attn/io/open_file.h"

namespace attn {

/// The bytes of one input, aligned to 64 so that tensors can share them.
struct FileBytes {
  std::string path;  ///< as the user wrote it; "-" is standard input
  std::shared_ptr<const std::byte> data;
  std::size_t size = 0;
  std::string known_digest = {};  ///< precomputed if the bytes are shared by several jobs
  bool is_mapped = false;         ///< not copied (io/mapped_file.h)
  /// Other contents of the same file have another one. Absent for pipes, and for a file that was
  /// modified a moment ago.
  std::optional<FileStamp> version = {};
  std::string digest() const;                                                 ///< io/digest.h
  std::string name() const { return path == "-" ? "standard input" : path; }  ///< for errors
  std::span<const std::byte> bytes() const { return {data.get(), size}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data.get()), size}; }
  /// Takes a part of a mapped file out of memory. It is read again when it is used.
  void release_pages(std::span<const std::byte> part) const;
};

/// read: copy the file. map: map large regular files into memory (io/mapped_file.h), which counts
/// as memory. map_part: likewise, but only parts of them are used, so they may have more than
/// `max_bytes` and do not count. growing: copy the present contents, even if another program
/// appends to the file.
enum class FileAccess { read, map, map_part, growing };

/// Reads a regular file, up to the size it has when opened, or a pipe: "-" or /dev/stdin (standard
/// input), /dev/fd/N, or a FIFO, which must have a writer within two seconds. /dev/null is empty;
/// other devices and sockets are refused (io/open_file.h). Errors: no_input (missing, a directory,
/// a device); permission; io, also if the file was modified while it was read; data, for more than
/// `max_bytes` bytes. At most one copy of the file is in memory. The file is noted as an input
/// (io/used_files.h).
FileBytes read_file(const std::string& path,
                    std::size_t max_bytes = std::numeric_limits<std::size_t>::max(),
                    FileAccess access = FileAccess::read);

/// The same for a file that is open, which is not noted: a result of an earlier run.
FileBytes read_file(OpenInput input, const std::string& path, std::size_t max_bytes,
                    FileAccess access);

/// The digest of the bytes that `file` has when it is opened (io/digest.h), without more than a
/// block of it in memory. Errors: io, also if the file is modified while it is read.
std::string digest_of_file(const OpenInput& file);

/// The first `size` bytes, or fewer if the file is shorter. Errors: io.
std::string start_of_file(const OpenInput& file, std::size_t size);

/// Throws Error(data) for invalid file contents. `where` is the file, then the part of it.
[[noreturn]] void fail_at(std::vector<std::string> where, std::string message);

}  // namespace attn
