// Ctrl-C as a request to stop a search and to report what it found.
#pragma once

#include <atomic>
#include <csignal>

namespace attn {

/// While it exists, the first SIGINT sets stopped(); the next one takes its usual action. One
/// object at a time.
class StopOnInterrupt {
 public:
  StopOnInterrupt();
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;
  ~StopOnInterrupt();

  const std::atomic<bool>* stopped() const;

 private:
  struct sigaction previous_ = {};
};

}  // namespace attn
