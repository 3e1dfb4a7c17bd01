#include "attn/io/mapping.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

// A fixed table, because a signal handler must not allocate or lock.
struct Slot {
  std::atomic<bool> taken = false;
  std::atomic<std::uintptr_t> begin = 0;  ///< 0: nothing is mapped
  std::size_t size = 0;
  std::array<char, 1024> message = {};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

constinit std::array<Slot, 64> slots = {};
std::atomic_flag ending;

Slot* slot_of(std::uintptr_t address) {
  for (Slot& slot : slots) {
    const std::uintptr_t begin = slot.begin;
    if (begin != 0 && address >= begin && address - begin < slot.size) return &slot;
  }
  return nullptr;
}

extern "C" void tell_lost_bytes(int signal_number, siginfo_t* info, void*) {
  const Slot* const slot = slot_of(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (slot == nullptr) {  // not a mapped file: the default action follows on return
    signal(signal_number, SIG_DFL);
    return;
  }
  while (ending.test_and_set()) pause();  // another thread reports it
  remove_temp_files();
  [[maybe_unused]] const ssize_t told =
      write(STDERR_FILENO, slot->message.data(), std::strlen(slot->message.data()));
  _exit(static_cast<int>(ErrorKind::io));
}

void watch_for_lost_bytes() {
  [[maybe_unused]] static const bool once = [] {
    struct sigaction action {};
    action.sa_sigaction = tell_lost_bytes;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGBUS, &action, nullptr) == 0;
  }();
}

Slot* take_slot() {
  for (Slot& slot : slots)
    if (!slot.taken.exchange(true)) return &slot;
  return nullptr;
}

void describe(Slot& slot, const std::string& name) {
  constexpr std::string_view kStart = "attn: ",
                             kEnd = ": was cut short while it was read, or its disk failed\n";
  const std::size_t free = slot.message.size() - kStart.size() - kEnd.size() - 1;
  const std::string text = std::string(kStart).append(printable(name).substr(0, free)).append(kEnd);
  std::copy_n(text.c_str(), text.size() + 1, slot.message.begin());
}

}  // namespace

std::shared_ptr<const std::byte> map_file(int fd, std::size_t size, const std::string& name) {
  if (size == 0) return nullptr;
  Slot* const slot = take_slot();
  if (slot == nullptr) return nullptr;
  watch_for_lost_bytes();
  describe(*slot, name);
  void* const start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (start == MAP_FAILED) {
    slot->taken = false;
    return nullptr;
  }
  slot->size = size;
  slot->begin = reinterpret_cast<std::uintptr_t>(start);
  return {static_cast<const std::byte*>(start), [slot, start, size](const std::byte*) {
            slot->begin = 0;
            munmap(start, size);
            slot->taken = false;
          }};
}

void look_at_pages(const void* data, std::size_t size) {
  constexpr std::size_t kPage = 4096;  // or more
  const volatile std::byte* const bytes = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < size; i += kPage) static_cast<void>(bytes[i]);
  if (size > 0) static_cast<void>(bytes[size - 1]);
}

FileStamp stamp_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim};
}

void require_unchanged(const std::string& name, const FileStamp& before, const struct stat& info) {
  const FileStamp now = stamp_of(info);
  if (now.device != before.device || now.inode != before.inode) return;
  if (now.size != before.size || now.modified.tv_sec != before.modified.tv_sec ||
      now.modified.tv_nsec != before.modified.tv_nsec)
    throw Error(ErrorKind::io,
                Problem{.where = {name}, .message = "was written to while it was read"});
}

void require_unchanged(const std::string& path, const FileStamp& before) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) require_unchanged(path, before, info);
}

}  // namespace attn
