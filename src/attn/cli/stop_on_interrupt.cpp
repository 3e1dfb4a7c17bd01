#include "attn/cli/stop_on_interrupt.h"

namespace attn {
namespace {

std::atomic<bool> is_stopped = false;
static_assert(std::atomic<bool>::is_always_lock_free);
struct sigaction usual_action = {};

extern "C" void stop_search(int signal_number) {
  is_stopped = true;
  sigaction(signal_number, &usual_action, nullptr);
}

}  // namespace

StopOnInterrupt::StopOnInterrupt() {
  is_stopped = false;
  sigaction(SIGINT, nullptr, &previous_);
  if (previous_.sa_handler == SIG_IGN) return;  // as set by nohup
  usual_action = previous_;
  struct sigaction action = previous_;
  action.sa_flags = SA_RESTART;
  action.sa_handler = stop_search;
  sigaction(SIGINT, &action, nullptr);
}

StopOnInterrupt::~StopOnInterrupt() { sigaction(SIGINT, &previous_, nullptr); }

const std::atomic<bool>* StopOnInterrupt::stopped() const { return &is_stopped; }

}  // namespace attn
