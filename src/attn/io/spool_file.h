// A temporary file without a name: bytes are appended, and read again at any offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "attn/io/open_file.h"

namespace attn {

/// The file is in `folder`, which must exist, and is created when the bytes do not fit in a buffer
/// of one MiB. It disappears when it is closed, also by SIGKILL. Not thread-safe. Errors: io,
/// cannot_create and permission, naming `folder`.
class SpoolFile {
 public:
  explicit SpoolFile(std::string folder) : folder_(std::move(folder)) {}

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text);
  std::uint64_t size() const { return written_ + buffer_.size(); }
  /// Fills `bytes` from `offset`. offset + bytes.size() must be at most size().
  void read(std::uint64_t offset, std::span<std::byte> bytes);
  void clear();  ///< keeps the file for the next bytes

 private:
  void create();
  void flush();
  void write(std::string_view text);  ///< to the end of the file; the buffer is empty or `text`

  std::string folder_, buffer_;
  Descriptor file_;
  std::uint64_t written_ = 0;
};

}  // namespace attn
