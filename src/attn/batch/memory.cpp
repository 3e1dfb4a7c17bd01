#include "attn/batch/memory.h"

namespace attn {

Memory::Share::Share(Memory& memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {
  std::unique_lock lock(memory_.mutex_);
  memory_.freed_.wait(lock, [&] { return memory_.free_ >= bytes_; });
  memory_.free_ -= bytes_;
}

Memory::Share::~Share() {
  {
    const std::lock_guard lock(memory_.mutex_);
    memory_.free_ += bytes_;
  }
  memory_.freed_.notify_all();
}

}  // namespace attn
