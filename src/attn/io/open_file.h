// Opens inputs and special outputs (pipes and devices). Regular outputs: io/staged_file.h.
//
// A file is first opened with O_PATH, which has no side effects, and checked; then that same file
// is opened for reading or writing through /proc/self/fd. So what was checked is what is used, even
// if the path names something else by then.
#pragma once

#include <sys/stat.h>

#include <string>

#include "attn/base/error.h"
#include "attn/io/descriptor.h"

namespace attn {

struct OpenInput {
  Descriptor descriptor;
  struct stat info {};
  bool inherited = false;  ///< a descriptor of our parent's, at its present offset
};

/// "-" and /dev/stdin are standard input, /dev/fd/N the inherited descriptor N; neither names a
/// file that attn itself has open. A FIFO is opened without waiting for a writer. Errors: no_input
/// (missing, a directory, a device other than /dev/null), permission.
OpenInput open_input(const std::string& path);

/// A copy of the inherited descriptor `fd`. Errors: `kind`, where it is not open or is attn's own.
Descriptor inherited_descriptor(int fd, const std::string& name, ErrorKind kind);

/// A pipe or device for writing; a FIFO waits for its reader. `target` is not followed where it is
/// a symbolic link. Errors: cannot_create, also for a regular file; permission. `name` is used in
/// errors.
Descriptor open_special_output(const std::string& target, const std::string& name);

}  // namespace attn
