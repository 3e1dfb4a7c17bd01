// Files as bytes: read whole, written whole or not at all.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace attn {

/// The bytes of one input. `digest` is "xxh128:<32 hex digits>" (as `xxh128sum FILE` prints).
struct FileBytes {
  std::string path;  ///< as the user wrote it; "-" is standard input
  std::shared_ptr<const std::byte> data;
  std::size_t size = 0;
  std::string digest() const;
  std::span<const std::byte> bytes() const { return {data.get(), size}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data.get()), size}; }
};

/// Reads a regular file, a pipe named on purpose ("-" for standard input, or a FIFO that has a
/// writer) to its end. Errors: no_input (missing, is a directory, a device), permission, io.
/// Memory grows with what was really read, never with what a header claims.
FileBytes read_file(const std::string& path);

/// How an output may come into being.
struct OutputPolicy {
  bool force = false;            ///< replace what stands there already
  std::set<std::string> inputs;  ///< paths that were read: writing onto one is refused
};

/// An output that is whole or not there. Bytes go to a temporary sibling (same folder, so the
/// rename is atomic; O_EXCL, mode by umask), and commit() flushes, closes and renames it. Without
/// commit() the destructor removes it and what stood under the name stays. "-" is standard output,
/// which is written as it comes. Errors: cannot_create, permission, io; each names path and reason.
class OutputFile {
 public:
  OutputFile(const std::string& path, const OutputPolicy& policy);
  OutputFile(OutputFile&&) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

  const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attn
