#include "attn/io/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

// A fixed table, because a signal handler must not allocate or lock.
struct Slot {
  std::atomic<std::uintptr_t> begin = 0;  ///< 0: nothing is mapped
  std::size_t size = 0;
  std::array<char, 1024> message = {};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

constexpr std::size_t kMaxMapped = 64;
constinit std::array<Slot, kMaxMapped> mapped_slots = {};
std::atomic_flag is_reporting_loss;

Slot* slot_of(std::uintptr_t address) {
  for (Slot& slot : mapped_slots) {
    const std::uintptr_t begin = slot.begin;
    if (begin != 0 && address >= begin && address - begin < slot.size) return &slot;
  }
  return nullptr;
}

extern "C" void report_lost_bytes(int signal_number, siginfo_t* info, void*) {
  const Slot* const slot = slot_of(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (slot == nullptr) {  // not a mapped file: the default action follows on return
    signal(signal_number, SIG_DFL);
    return;
  }
  while (is_reporting_loss.test_and_set()) pause();  // another thread reports it
  remove_temp_files();
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, slot->message.data(), std::strlen(slot->message.data()));
  _exit(static_cast<int>(ErrorKind::io));
}

void watch_for_lost_bytes() {
  [[maybe_unused]] static const bool once = [] {
    struct sigaction action {};
    action.sa_sigaction = report_lost_bytes;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGBUS, &action, nullptr) == 0;
  }();
}

void describe(Slot& slot, const std::string& name) {
  constexpr std::string_view kStart = "attn: ",
                             kEnd = ": was truncated while being read, or its disk failed\n";
  const std::size_t free = slot.message.size() - kStart.size() - kEnd.size() - 1;
  const std::string text = std::string(kStart).append(printable(name).substr(0, free)).append(kEnd);
  std::copy_n(text.c_str(), text.size() + 1, slot.message.begin());
}

struct MappedFile {
  Descriptor file;
  FileStamp stamp;
  std::string name;
  std::uintptr_t begin = 0;
  bool is_reported = false;

  bool is_modified() const {
    struct stat now {};
    return fstat(file.get(), &now) == 0 && !(stamp == stamp_of(now));
  }
};

[[noreturn]] void fail_as_modified(const std::string& name) {
  throw path_error(ErrorKind::io, name, "was modified while being read");
}

/// The files that are mapped, and those that were modified before their mapping ended.
class MappedFiles {
 public:
  /// Null if the system refuses.
  const std::byte* add(Descriptor& file, const struct stat& info, const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (mapped_.size() == kMaxMapped) return nullptr;
    Slot& slot = *std::find_if(mapped_slots.begin(), mapped_slots.end(),
                               [](const Slot& s) { return s.begin == 0; });
    mapped_.reserve(kMaxMapped);
    MappedFile added{Descriptor(), stamp_of(info), name};
    const auto size = static_cast<std::size_t>(info.st_size);
    describe(slot, name);
    void* const start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (start == MAP_FAILED) return nullptr;
    slot.size = size;
    slot.begin = added.begin = reinterpret_cast<std::uintptr_t>(start);
    added.file = std::move(file);
    mapped_.push_back(std::move(added));
    return static_cast<const std::byte*>(start);
  }

  void remove(const std::byte* start, std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto begin = reinterpret_cast<std::uintptr_t>(start);
    const auto found = std::find_if(mapped_.begin(), mapped_.end(),
                                    [&](const MappedFile& file) { return file.begin == begin; });
    if (modified_.empty() && !found->is_reported && found->is_modified())
      modified_ = std::move(found->name);
    mapped_.erase(found);
    slot_of(begin)->begin = 0;
    munmap(const_cast<std::byte*>(start), size);
  }

  void require_unchanged() {
    const std::lock_guard lock(mutex_);
    if (!modified_.empty()) fail_as_modified(std::exchange(modified_, {}));
    for (MappedFile& file : mapped_)
      if (file.is_modified()) {
        file.is_reported = true;
        fail_as_modified(file.name);
      }
  }

 private:
  std::mutex mutex_;
  std::vector<MappedFile> mapped_;
  std::string modified_;  ///< the first one whose mapping has ended
};

MappedFiles& mapped_files() {
  static MappedFiles* const files = new MappedFiles;  // mappings may end after static objects
  return *files;
}

}  // namespace

FileStamp stamp_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim};
}

bool operator==(const FileStamp& a, const FileStamp& b) {
  return a.device == b.device && a.inode == b.inode && a.size == b.size &&
         a.modified.tv_sec == b.modified.tv_sec && a.modified.tv_nsec == b.modified.tv_nsec;
}

namespace {

constexpr timespec kResolution{0, 20'000'000};  // of timestamps, at most

}  // namespace

bool is_settled(const struct stat& info) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::int64_t seconds = now.tv_sec - info.st_mtim.tv_sec;
  if (seconds < 0 || seconds > 1) return true;
  const std::int64_t age = seconds * kSecond + now.tv_nsec - info.st_mtim.tv_nsec;
  return age < 0 || age >= kResolution.tv_nsec;
}

struct stat settled_status(const Descriptor& file, const std::string& name) {
  constexpr int kMaxPauses = 5;  // a file that is being written to changes again later
  struct stat info {};
  for (int pauses = 0;; ++pauses) {
    if (fstat(file.get(), &info) != 0) throw system_error(ErrorKind::io, name, errno);
    if (is_settled(info) || pauses == kMaxPauses) return info;
    nanosleep(&kResolution, nullptr);
  }
}

void require_unchanged(const std::string& name, const FileStamp& before, const struct stat& now) {
  if (!(before == stamp_of(now))) fail_as_modified(name);
}

std::shared_ptr<const std::byte> map_file(Descriptor& file, const struct stat& info,
                                          const std::string& name) {
  if (info.st_size == 0) return nullptr;
  watch_for_lost_bytes();
  const std::byte* const start = mapped_files().add(file, info, name);
  if (start == nullptr) return nullptr;
  return {start, [size = static_cast<std::size_t>(info.st_size)](const std::byte* bytes) {
            mapped_files().remove(bytes, size);
          }};
}

void require_mapped_files_unchanged() { mapped_files().require_unchanged(); }

void touch_pages(const void* data, std::size_t size) {
  constexpr std::size_t kPage = 4096;  // or more
  const volatile std::byte* const bytes = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < size; i += kPage) static_cast<void>(bytes[i]);
  if (size > 0) static_cast<void>(bytes[size - 1]);
}

}  // namespace attn
