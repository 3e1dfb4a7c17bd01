// Output files that are either complete or absent, because they get their names only when they are
// complete; and the rules for replacing existing files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "attn/base/dtype.h"
#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/digest.h"
#include "attn/io/open_file.h"
#include "attn/io/output_path.h"
#include "attn/io/temp_files.h"
#include "attn/io/used_files.h"

namespace attn {

struct OutputPolicy {
  bool force = false;               ///< replace an existing file
  bool durable = false;             ///< fsync the file and its directory
  bool digest = false;              ///< compute digest()
  bool nameless = false;            ///< use O_TMPFILE if possible; faster for many outputs
  std::set<std::string> ours = {};  ///< paths that may be replaced without `force`
  bool same = false;  ///< accept an existing file with the same bytes; requires `digest`
};

/// From now on, files and folders get their modes when they are created, not later, and the umask
/// is 0. Call it before other threads are started.
void set_modes_at_creation();

/// Where a tensor is in an unfinished output.
struct RegionPlace {
  std::uint64_t inode = 0, start = 0, row_bytes = 0;  ///< of the file; in bytes
  DType dtype = DType::f64;
  bool with_checksum = false, durable = false;
};

/// A region of an unfinished output that other processes write, too.
struct SharedRegion {
  std::string output;     ///< the tensor's name
  std::string path;       ///< of the output, for messages
  std::string temporary;  ///< absolute
  RegionPlace place;
};

/// An output exists and must not be replaced.
struct ExistsAlready : Error {
  explicit ExistsAlready(const std::string& existing)
      : Error(ErrorKind::cannot_create,
              Problem{
                  .where = {existing}, .message = "already exists", .hint = "--force replaces it"}),
        path(existing) {}
  std::string path;
};

/// Until give_name() the bytes are in a temporary file ".attn-tmp-PID-TOKEN-N" in the same
/// directory (io/temp_files.h), with mode 0600, or with the final mode after
/// set_modes_at_creation(). The destructor removes it. Renaming it is atomic. With `nameless`, and
/// where the file system supports it, a new file has no name until then (O_TMPFILE, linkat): this
/// changes the directory once instead of three times, and threads that write into one directory
/// wait for these changes.
///
/// The constructor reports errors that can be detected in advance: a name that exists (without
/// force), an input or another output (even with force; io/used_files.h), a directory, a missing
/// directory or one without permission. A name that appears later is not overwritten either. A
/// symbolic link is kept and its target is written, unless the path is confined (io/output_path.h),
/// where a link is an error. A replaced file keeps its mode; a new file's mode follows the umask.
/// "-", /dev/stdout, /dev/fd/N, FIFOs and devices are written directly.
///
/// Errors: cannot_create, permission, io; each states path and reason.
class StagedFile {
 public:
  StagedFile(const std::string& path, const OutputPolicy& policy);
  /// Opens the temporary file of another process, which gives it its name. Errors: cannot_create,
  /// if it does not exist here; io, if another file does.
  explicit StagedFile(const SharedRegion& region);
  StagedFile(StagedFile&&) noexcept = default;
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  ~StagedFile();

  const std::string& path() const { return path_; }  ///< as the user wrote it, or "standard output"
  int descriptor() const { return file_.get(); }     ///< for writing, until close()
  SharedRegion shared() const;                       ///< without the region itself
  void close();                                      ///< with fsync if durable
  /// With `same`, keeps an existing file that has this digest. Errors: ExistsAlready, if it has
  /// another.
  void settle(const std::string& digest);
  void give_name();  ///< after close()

 private:
  bool is_staged() const { return temporary_ != nullptr || nameless_; }
  void require_replaceable() const;
  void open(const OutputPolicy& policy);
  void open_temporary();
  void remove_temporary();
  std::string path_beside(const OutputEntry& entry) const;
  bool open_nameless();
  void rename_temporary();
  void link_nameless();

  std::string path_;
  OutputEntry target_;                ///< of path_, after following symbolic links
  std::optional<OutputClaim> claim_;  ///< of target_; none for pipes and devices
  bool force_, same_, durable_;
  mode_t mode_ = 0;
  Descriptor file_;
  std::unique_ptr<TempPath> temporary_;  ///< null for pipes and devices
  OutputEntry temporary_entry_;          ///< of the same file
  bool nameless_ = false;                ///< opened with O_TMPFILE
  bool settled_ = false;                 ///< the existing file has the same bytes
  bool joined_ = false;                  ///< the temporary file of another process
};

/// Thrown when the reader of standard output or a pipe has closed it (`attn ... | head`). Not an
/// Error: nothing is printed, and the program ends with exit code 141, as if by SIGPIPE. SIGPIPE
/// must be ignored.
struct BrokenPipe {};

/// Writes to a StagedFile, which commit() flushes, closes and renames. Without commit() it is
/// removed, and an existing file of the name is unchanged. Pipes and devices are written directly.
///
/// Errors: cannot_create, permission, io; each states path and reason. Throws BrokenPipe.
class OutputFile {
 public:
  OutputFile(const std::string& path, const OutputPolicy& policy);
  /// For write_at() only. Errors: as StagedFile.
  explicit OutputFile(const SharedRegion& region) : file_(region) {}

  SharedRegion shared() const { return file_.shared(); }  ///< without the region itself
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
