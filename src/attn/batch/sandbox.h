// Drops the privileges that a worker process does not need, so that an error in a reader of
// files cannot be used to run programs, use the network or change other files.
#pragma once

#include <string>
#include <vector>

namespace attn {

struct SandboxSupport {
  bool has_seccomp = false;
  int landlock = 0;  ///< version of its interface; 0: none
};

/// What the kernel offers.
SandboxSupport sandbox_support();

/// Limits this process and its future threads for good. With seccomp, they can read files, use
/// memory, threads and signals of their own, and write and create files if there are `folders`.
/// openat2() is allowed always, because reading uses it, and a filter cannot read its flags:
/// without Landlock, it can open files for writing. Every other system call fails with EPERM, or
/// with ENOSYS if it is newer than Linux 5.0. With Landlock, they can create, change and remove
/// files only in `folders` and below; reading is not limited. What the kernel lacks is left out.
/// Files get their modes when they are created, because modes cannot be changed (io/staged_file.h).
/// Call it before starting threads.
void enter_sandbox(const std::vector<std::string>& folders);

}  // namespace attn
