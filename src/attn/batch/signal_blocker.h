// Blocks signals while threads or processes are started.
#pragma once

#include <signal.h>

namespace attn {

/// Blocks all signals, during its lifetime, on this thread and on threads and processes that it
/// starts.
class SignalBlocker {
 public:
  SignalBlocker() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalBlocker(const SignalBlocker&) = delete;
  SignalBlocker& operator=(const SignalBlocker&) = delete;
  ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace attn
