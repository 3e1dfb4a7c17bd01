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

/// Limits this process and its future threads for good. With seccomp, they cannot start programs or
/// processes, open sockets, trace or signal other processes, or administer the system: such calls
/// fail with EPERM. With Landlock, they can create, change and remove files only in `folders` and
/// below; reading is not limited. What the kernel lacks is left out. Call it before starting
/// threads.
void enter_sandbox(const std::vector<std::string>& folders);

}  // namespace attn
