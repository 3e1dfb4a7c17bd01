#include "attn/io/temporaries.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstring>

namespace attn {
namespace {

enum class Use { free, being_written, taken };

// A fixed table, as a signal handler may neither allocate nor lock.
struct Slot {
  std::atomic<Use> use = Use::free;
  std::array<char, PATH_MAX> path;
};
static_assert(std::atomic<Use>::is_always_lock_free);

std::array<Slot, 64> slots;

int remember(const std::string& path) {
  for (std::size_t i = 0; i < slots.size() && path.size() < PATH_MAX; ++i) {
    Use expected = Use::free;
    if (!slots[i].use.compare_exchange_strong(expected, Use::being_written)) continue;
    std::memcpy(slots[i].path.data(), path.c_str(), path.size() + 1);
    slots[i].use = Use::taken;
    return static_cast<int>(i);
  }
  return -1;
}

extern "C" void remove_and_die(int signal_number) {
  for (const Slot& slot : slots)
    if (slot.use == Use::taken) unlink(slot.path.data());
  raise(signal_number);  // SA_RESETHAND has restored the default action
}

}  // namespace

void remove_temporaries_on_signals() {
  for (const int signal_number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU}) {
    struct sigaction before {};
    if (sigaction(signal_number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = remove_and_die;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    sigaction(signal_number, &action, nullptr);
  }
  signal(SIGXFSZ, SIG_IGN);
}

TemporaryName::TemporaryName(std::string path) : path_(std::move(path)), slot_(remember(path_)) {}

TemporaryName::~TemporaryName() {
  if (slot_ >= 0) slots[static_cast<std::size_t>(slot_)].use = Use::free;
}

}  // namespace attn
