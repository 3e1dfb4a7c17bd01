// Files as bytes: read whole, written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "attn/io/mapping.h"
#include "attn/tensor/error.h"

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

/// Whether bytes are copied, or large regular files are used where they are (io/mapping.h).
enum class FileAccess { read, map };

/// Reads a regular file, or a pipe named on purpose, to its end: "-" or /dev/stdin (standard
/// input), /dev/fd/N, or a FIFO, which must have a writer within two seconds. /dev/null is empty;
/// other devices and sockets are refused. Errors: no_input (missing, a directory, a device),
/// permission; io, also for a file that was written to between its opening and its end, as its
/// time of change tells; data, for more than `most` bytes. Memory grows with what was really read,
/// never with what a header claims.
FileBytes read_file(const std::string& path,
                    std::size_t most = std::numeric_limits<std::size_t>::max(),
                    FileAccess access = FileAccess::read);

/// How an output may come into being.
struct OutputPolicy {
  bool force = false;                 ///< replace what stands there already
  std::set<std::string> inputs = {};  ///< paths that were read: writing onto one is refused
  bool durable = false;               ///< outlast a power cut: fsync of the file and its folder
  bool digest = false;                ///< digest() will be asked for
  bool nameless = false;              ///< no temporary sibling where that can be: for many outputs
  std::set<std::string> ours = {};    ///< paths that may be replaced without `force`
  bool same = false;  ///< what stands there is taken where it has the very bytes; needs `digest`
};

/// An output exists and may not be replaced.
struct ExistsAlready : Error {
  explicit ExistsAlready(std::string where);
  std::string path;
};

/// Thrown when the reader of standard output or of a pipe has gone (`attn … | head`). Not an Error:
/// nothing is wrong and nothing is to be said; the program ends with exit code 141, as if by
/// SIGPIPE, which has to be ignored for this to be seen.
struct BrokenPipe {};

/// Where a chain of symbolic links ends, which need not exist. A circle stays a link, and stat()
/// then names the fault.
std::string follow_links(const std::string& path);

/// Has the names in a folder outlast a power cut. Errors: io, naming `path`, for which it is done.
void sync_folder(const std::string& path, const std::string& folder);

/// An output that is whole or not there.
///
/// Bytes go to a temporary sibling, ".attn-tmp-PID-TOKEN-N" (io/temporaries.h; same folder, so the
/// rename is atomic; nobody else may read it while it grows), and commit() flushes, closes and
/// renames it. Without commit() the destructor removes it and what stood under the name stays. With
/// `nameless` a new file has no name at all until commit() gives it its own (O_TMPFILE, linkat),
/// where the file system can do that: one entry made in the folder rather than two made and one
/// taken out, which is what threads that write into one folder wait for.
///
/// Everything that can be known beforehand is refused by the constructor, so that nothing is
/// computed in vain: a name that exists (without force), an input (even with force), a directory, a
/// folder that is missing or closed. A name that appears later is not overwritten either. A
/// symbolic link stays and its target is written. A replaced file's mode is kept; a new file's is
/// the umask's. "-", /dev/stdout, /dev/fd/N, FIFOs and devices are written as the bytes come.
///
/// Errors: cannot_create, permission, io; each names path and reason. Throws BrokenPipe.
class OutputFile {
 public:
  OutputFile(const std::string& path, const OutputPolicy& policy);
  OutputFile(OutputFile&&) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

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

  const std::string& path() const;  ///< as the user wrote it, or "standard output"
  std::string digest() const;       ///< of what was written (io/digest.h)

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attn
