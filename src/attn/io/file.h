// Files as bytes, read whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attn/io/mapping.h"

namespace attn {

/// The bytes of one input, aligned to 64 so that tensors can share them. `digest` is
/// "xxh128:<32 hex digits>" (as `xxh128sum FILE` prints).
struct FileBytes {
  std::string path;  ///< as the user wrote it; "-" is standard input
  std::shared_ptr<const std::byte> data;
  std::size_t size = 0;
  std::string known_digest = {};  ///< set where the bytes are shared by many, who all ask for it
  std::optional<FileStamp> mapped = {};  ///< the bytes are the file's own, and not a copy
  std::string digest() const;
  std::string name() const { return path == "-" ? "standard input" : path; }  ///< in errors
  std::span<const std::byte> bytes() const { return {data.get(), size}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data.get()), size}; }
  /// Errors: io, where they are the file's own and were written to since.
  void require_unchanged() const {
    if (mapped) attn::require_unchanged(path, *mapped);
  }
};

/// Whether bytes are copied, or large regular files are used where they are (io/mapping.h); or
/// copied as far as they go now, where another program appends to the file.
enum class FileAccess { read, map, growing };

/// Reads a regular file, to the end that it has when it is opened, or a pipe named on purpose: "-"
/// or /dev/stdin (standard input), /dev/fd/N, or a FIFO, which must have a writer within two
/// seconds. /dev/null is empty; other devices and sockets are refused. Errors: no_input (missing, a
/// directory, a device), permission; io, also for a file that was written to between its opening
/// and its end, as its time of change tells; data, for more than `most` bytes. Memory grows with
/// what was really read, never with what a header claims.
FileBytes read_file(const std::string& path,
                    std::size_t most = std::numeric_limits<std::size_t>::max(),
                    FileAccess access = FileAccess::read);

}  // namespace attn
