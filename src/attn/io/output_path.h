// Paths of outputs. Those below the output folder of a batch never lead out of it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "attn/io/open_file.h"

namespace attn {

/// An entry of a folder, for openat() and similar calls.
struct OutputEntry {
  std::shared_ptr<const Descriptor> folder;  ///< null unless the entry is confined
  std::string name;                          ///< in `folder`, or a path

  bool is_confined() const { return folder != nullptr; }
  int at() const;
  /// The entry `name` of the same folder.
  OutputEntry beside(const std::string& name) const;
};

/// Confines all paths that begin with `folder` and '/', and have no "..": no part of them after
/// `folder` may be a symbolic link, also when files are removed. `folder` itself may be one. Call
/// it once, before other threads and processes are started. Errors: cannot_create, permission.
void confine_outputs(const std::string& folder);

/// Errors, only for confined paths: cannot_create, if a folder on the way is a link or does not
/// exist; permission.
OutputEntry output_entry(const std::string& path);

/// Makes the entry durable (fsync of its folder). Errors: io, for `path`.
void sync_folder_of(const OutputEntry& entry, const std::string& path);

/// The error for a confined path that ends in a link.
Error link_error(const std::string& path);

/// openat(). Errors: as output_entry(); cannot_create, for a link at the end of a confined path. If
/// it fails for another reason, the descriptor is not open and errno is set.
Descriptor open_output(const std::string& path, int flags, mode_t mode = 0);

/// A result of an earlier run. Errors: no_input, if it is missing or not a regular file, or if a
/// part of a confined path is a link; permission.
OpenInput open_result(const std::string& path);

enum class PathKind { file, folder };

/// Removes a file or an empty folder; false, with errno, on failure. May be called in a signal
/// handler.
bool remove_output(const char* path, PathKind kind) noexcept;

}  // namespace attn
