// Output files that are complete or absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attn/io/digest.h"
#include "attn/io/staged_file.h"

namespace attn {

/// Thrown when the reader of standard output or a pipe has closed it (`attn ... | head`). Not an
/// Error: nothing is printed, and the program ends with exit code 141, as if by SIGPIPE. SIGPIPE
/// must be ignored.
struct BrokenPipe {};

/// Bytes go to a staged file (io/staged_file.h), which commit() flushes, closes and renames.
/// Without commit() it is removed, and an existing file of the name is unchanged. Pipes and devices
/// are written directly.
///
/// Errors: cannot_create, permission, io; each states path and reason. Throws BrokenPipe.
class OutputFile {
 public:
  OutputFile(const std::string& path, const OutputPolicy& policy);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void flush();   ///< passes what was written so far to the system
  void finish();  ///< what commit() does, without the renaming

  /// Allocates disk space for the first `bytes` of the file, so that a full disk is reported at
  /// once.
  void reserve(std::uint64_t bytes);
  /// Writes the parts, one after the other, at `offset`; thread-safe. Not for pipes and devices,
  /// nor with a digest. Errors: io.
  void write_at(std::uint64_t offset, std::span<const std::span<const std::byte>> parts);
  /// Moves the position of the next write() forward by `bytes`.
  void skip(std::uint64_t bytes);
  void commit();

  const std::string& path() const { return file_.path(); }
  std::string digest() const { return digest_->text(); }  ///< io/digest.h

 private:
  StagedFile file_;
  std::string buffer_;
  std::optional<Digest> digest_;
  bool finished_ = false;
};

}  // namespace attn
