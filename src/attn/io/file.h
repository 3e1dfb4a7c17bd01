// Whole files as bytes.
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
  /// Errors: io, if the file is mapped and was modified since.
  void require_unchanged() const {
    if (mapped) attn::require_unchanged(path, *mapped);
  }
};

/// read: copy the file. map: map large regular files into memory (io/mapping.h). growing: copy what
/// is there now, even if another program appends to the file.
enum class FileAccess { read, map, growing };

/// Reads a regular file, up to the size it has when opened, or a pipe: "-" or /dev/stdin (standard
/// input), /dev/fd/N, or a FIFO, which must have a writer within two seconds. /dev/null is empty;
/// other devices and sockets are refused (io/open_file.h). Errors: no_input (missing, a directory,
/// a device); permission; io, also if the file was modified while it was read; data, for more than
/// `most` bytes. At most one copy of the file is in memory.
FileBytes read_file(const std::string& path,
                    std::size_t most = std::numeric_limits<std::size_t>::max(),
                    FileAccess access = FileAccess::read);

}  // namespace attn
