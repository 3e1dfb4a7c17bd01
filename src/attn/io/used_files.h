// The files that this run reads and writes, so that no output replaces an input or another output.
// They are compared by identity (device and inode), which links and other spellings do not change.
#pragma once

#include <sys/stat.h>

#include <compare>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/output_path.h"

namespace attn {

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
  bool operator<(const FileId& other) const {
    return std::pair(device, inode) < std::pair(other.device, other.inode);
  }
};
FileId id_of(const struct stat& info);

/// Nothing if `path` leads to no file, or to a folder.
std::optional<FileId> id_of_file(const std::string& path);

/// Records an input. Thread-safe. read_file() calls it; others call it for inputs whose names are
/// known before they are read. Does nothing if there is no regular file.
void note_input(const struct stat& info);
void note_input(const std::string& path);

/// Records a file that was written. Thread-safe.
void note_output(const struct stat& info);

/// Whether files are recorded; not at first. A run that replaces no files needs no record, which
/// takes some 50 bytes for each file. Switching it off forgets them.
void record_used_files(bool is_on);

/// From now on, inputs noted by this process and those that it will fork are known to all of them.
/// Throws std::bad_alloc.
void share_noted_inputs();

/// Errors: cannot_create, if the existing file was noted. `path` is the name of the output that
/// would replace it.
void require_unused(const FileId& file, const std::string& path);

/// An output with the name of another one of this run.
Error same_output_error(const std::string& path);

/// The name of an output, until the destructor. It need not exist.
class OutputClaim {
 public:
  /// `path` is for messages. Errors: cannot_create, if this name belongs to another output.
  OutputClaim(const OutputEntry& entry, const std::string& path);
  OutputClaim(OutputClaim&&) noexcept = default;
  OutputClaim(const OutputClaim&) = delete;
  ~OutputClaim();

 private:
  struct Name {
    FileId folder;
    std::string name;
    bool operator==(const Name&) const = default;
  };
  static std::mutex mutex;
  static std::vector<const Name*> claimed;
  std::unique_ptr<const Name> name_;  ///< null if the folder does not exist
};

/// The same for an output that is no StagedFile. Follows links.
OutputClaim claim_of(const std::string& path);

}  // namespace attn
