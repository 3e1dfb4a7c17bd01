// Where an output comes to stand: made beside its place, and given its name when it is whole.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "attn/io/descriptor.h"
#include "attn/io/output_policy.h"
#include "attn/io/temporaries.h"

namespace attn {

/// A file on its way to its place.
///
/// Until give_name() it is a temporary sibling, ".attn-tmp-PID-TOKEN-N" (io/temporaries.h; same
/// folder, so the renaming is atomic; nobody else may read it while it grows), which the destructor
/// removes. With `nameless` a new file has no name at all until then (O_TMPFILE, linkat), where the
/// file system can do that: one entry made in the folder rather than two made and one taken out,
/// which is what threads that write into one folder wait for.
///
/// Everything that can be known beforehand is refused by the constructor, so that nothing is
/// computed in vain: a name that exists (without force), an input (even with force), a directory, a
/// folder that is missing or closed. A name that appears later is not overwritten either. A
/// symbolic link stays and its target is written. A replaced file's mode is kept; a new file's is
/// the umask's. "-", /dev/stdout, /dev/fd/N, FIFOs and devices are their own place from the start.
///
/// Errors: cannot_create, permission, io; each names path and reason.
class StagedFile {
 public:
  StagedFile(const std::string& path, const OutputPolicy& policy);
  StagedFile(StagedFile&&) noexcept = default;
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  ~StagedFile();

  const std::string& path() const { return path_; }  ///< as the user wrote it, or "standard output"
  int descriptor() const { return file_.get(); }     ///< to be written to, until close()
  void close();                                      ///< on disk by then, where it is to be durable
  /// With `same`, a file that stands there already stays where it has this digest. Errors:
  /// ExistsAlready, where it has another.
  void settle(const std::string& digest);
  void give_name();  ///< after close()

 private:
  bool is_staged() const { return temporary_ != nullptr || nameless_; }
  void open(const OutputPolicy& policy);
  void open_temporary();
  bool open_nameless();
  void open_special(int fd);
  void rename_temporary();
  void link_nameless();

  std::string path_;
  std::string target_;  ///< what it names, after symbolic links
  bool force_, same_, durable_;
  mode_t mode_ = 0;
  Descriptor file_;
  std::unique_ptr<TemporaryName> temporary_;  ///< none where bytes go straight to their place
  bool nameless_ = false;                     ///< in place of a temporary name
  bool settled_ = false;                      ///< what stands there has the same bytes, and stays
};

}  // namespace attn
