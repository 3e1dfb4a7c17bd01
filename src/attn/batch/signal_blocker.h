// Blocks signals while threads or processes are started.
#pragma once

#include <signal.h>

namespace attn {

/// Blocks signals, during its lifetime, on this thread and on threads and processes that it starts.
/// Signals that the thread's own instructions raise are not blocked: the kernel would end the
/// program without calling their handlers, such as that of map_file().
class SignalBlocker {
 public:
  SignalBlocker() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int raised : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
      sigdelset(&blocked, raised);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  SignalBlocker(const SignalBlocker&) = delete;
  SignalBlocker& operator=(const SignalBlocker&) = delete;
  ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace attn
