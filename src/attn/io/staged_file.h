// Output files that get their name only when they are complete.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "attn/io/descriptor.h"
#include "attn/io/output_policy.h"
#include "attn/io/temp_files.h"

namespace attn {

/// Until give_name() the bytes are in a temporary file ".attn-tmp-PID-TOKEN-N" in the same
/// directory (io/temp_files.h), with mode 0600, which the destructor removes. Renaming it is
/// atomic. With `nameless`, and where the file system supports it, a new file has no name until
/// then (O_TMPFILE, linkat): this changes the directory once instead of three times, and threads
/// that write into one directory wait for these changes.
///
/// The constructor refuses whatever can be known in advance: a name that exists (without force), an
/// input (even with force), a directory, a missing directory or one without permission. A name that
/// appears later is not overwritten either. A symbolic link is kept and its target is written. A
/// replaced file keeps its mode; a new file's mode follows the umask. "-", /dev/stdout, /dev/fd/N,
/// FIFOs and devices are written directly.
///
/// Errors: cannot_create, permission, io; each states path and reason.
class StagedFile {
 public:
  StagedFile(const std::string& path, const OutputPolicy& policy);
  StagedFile(StagedFile&&) noexcept = default;
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  ~StagedFile();

  const std::string& path() const { return path_; }  ///< as the user wrote it, or "standard output"
  int descriptor() const { return file_.get(); }     ///< for writing, until close()
  void close();                                      ///< with fsync if durable
  /// With `same`, keeps an existing file that has this digest. Errors: ExistsAlready, if it has
  /// another.
  void settle(const std::string& digest);
  void give_name();  ///< after close()

 private:
  bool is_staged() const { return temporary_ != nullptr || nameless_; }
  void open(const OutputPolicy& policy);
  void open_temporary();
  bool open_nameless();
  void rename_temporary();
  void link_nameless();

  std::string path_;
  std::string target_;  ///< path_ after following symbolic links
  bool force_, same_, durable_;
  mode_t mode_ = 0;
  Descriptor file_;
  std::unique_ptr<TempPath> temporary_;  ///< null for pipes and devices
  bool nameless_ = false;                ///< opened with O_TMPFILE
  bool settled_ = false;                 ///< the existing file has the same bytes
};

}  // namespace attn
