// Outputs as bytes, whole or not there.
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

/// Thrown when the reader of standard output or of a pipe has gone (`attn … | head`). Not an Error:
/// nothing is wrong and nothing is to be said; the program ends with exit code 141, as if by
/// SIGPIPE, which has to be ignored for this to be seen.
struct BrokenPipe {};

/// An output that is whole or not there.
///
/// Bytes go to a file on its way to its place (io/staged_file.h), and commit() flushes, closes and
/// names it. Without commit() it is gone and what stood under the name stays. What is a place of
/// its own from the start, as a pipe is, is written as the bytes come.
///
/// Errors: cannot_create, permission, io; each names path and reason. Throws BrokenPipe.
class OutputFile {
 public:
  OutputFile(const std::string& path, const OutputPolicy& policy);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void flush();   ///< what was written so far leaves this process
  void finish();  ///< all that commit() does but the name: what can fail, short of it, has failed

  /// Finds room on the disk for the first `bytes` of the file, so that too little is known at once.
  void reserve(std::uint64_t bytes);
  /// Writes one part behind another at `offset`, before those in front of it, too: not where bytes
  /// go straight to their place, nor where digest() will be asked for. Threads may do so at once.
  /// Errors: io.
  void write_at(std::uint64_t offset, std::span<const std::span<const std::byte>> parts);
  /// What write() writes next comes `bytes` further on.
  void skip(std::uint64_t bytes);
  void commit();

  const std::string& path() const { return file_.path(); }
  std::string digest() const { return digest_->text(); }  ///< of what was written (io/digest.h)

 private:
  StagedFile file_;
  std::string buffer_;
  std::optional<Digest> digest_;
  bool finished_ = false;
};

}  // namespace attn
