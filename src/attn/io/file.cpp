#include "attn/io/file.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/open_file.h"
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
                             kEnd = ": was truncated while being read, or its disk failed\n";
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

void touch_pages(const void* data, std::size_t size) {
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
                Problem{.where = {name}, .message = "was modified while being read"});
}

void require_unchanged(const std::string& path, const FileStamp& before) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) require_unchanged(path, before, info);
}

namespace {

constexpr int kWriterMilliseconds = 2000;                      // time for a FIFO to get a writer
constexpr std::size_t kWorthMapping = std::size_t{128} << 10;  // smaller files are read as fast

[[noreturn]] void too_large(const FileBytes& file, std::size_t size, std::size_t max_bytes) {
  throw Error(ErrorKind::data, Problem{.where = {file.name()},
                                       .expected = "at most " + std::to_string(max_bytes) +
                                                   (max_bytes == 1 ? " byte" : " bytes"),
                                       .found = std::to_string(size) + " or more",
                                       .hint = "--max-memory raises the limit"});
}

/// A buffer for a file of unknown size. It grows in place or by moving pages, not by copying, which
/// would need memory for both copies.
class GrowingBuffer {
 public:
  explicit GrowingBuffer(std::size_t capacity) : capacity_(capacity) {
    void* const start =
        mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(start);
  }
  GrowingBuffer(const GrowingBuffer&) = delete;
  GrowingBuffer& operator=(const GrowingBuffer&) = delete;
  ~GrowingBuffer() {
    if (start_ != nullptr) munmap(start_, capacity_);
  }

  std::byte* data() const { return start_; }
  std::size_t capacity() const { return capacity_; }

  void grow() {
    void* const start = mremap(start_, capacity_, 2 * capacity_, MREMAP_MAYMOVE);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(start);
    capacity_ *= 2;
  }

  std::shared_ptr<const std::byte> take() {
    std::shared_ptr<const std::byte> shared(start_, [size = capacity_](const std::byte* start) {
      munmap(const_cast<std::byte*>(start), size);
    });
    start_ = nullptr;
    return shared;
  }

 private:
  std::byte* start_ = nullptr;
  std::size_t capacity_;
};

/// Adds at most `capacity` bytes to `file.size`, which are written to `to`; false at the end.
bool read_some(FileBytes& file, int fd, std::byte* to, std::size_t capacity,
               std::size_t max_bytes) {
  for (;;) {
    const ssize_t count = read(fd, to, capacity);
    if (count >= 0) {
      file.size += static_cast<std::size_t>(count);
      if (file.size > max_bytes) too_large(file, file.size, max_bytes);
      return count > 0;
    }
    if (errno == EAGAIN)
      wait_for(fd, POLLIN);
    else if (errno != EINTR)
      throw system_error(ErrorKind::io, file.name(), errno);
  }
}

/// Reads to the end.
void read_rest(FileBytes& file, int fd, GrowingBuffer& buffer, std::size_t max_bytes) {
  bool more = true;
  while (more) {
    if (file.size == buffer.capacity()) buffer.grow();
    more = read_some(file, fd, buffer.data() + file.size, buffer.capacity() - file.size, max_bytes);
  }
}

/// Reads the first `size` bytes of a file, its size when it was opened, or up to its end if
/// `is_settled` is false and it has grown.
void read_regular(FileBytes& file, int fd, std::size_t size, std::size_t max_bytes,
                  bool is_settled) {
  const std::shared_ptr<std::byte> buffer = allocate_bytes(size);
  while (file.size < size &&
         read_some(file, fd, buffer.get() + file.size, size - file.size, max_bytes)) {
  }
  file.data = buffer;
  if (is_settled || file.size < size) return;
  std::byte more;
  if (!read_some(file, fd, &more, 1, max_bytes)) return;
  GrowingBuffer larger(2 * size + 1);
  std::memcpy(larger.data(), buffer.get(), size);
  larger.data()[size] = more;
  read_rest(file, fd, larger, max_bytes);
  file.data = larger.take();
}

void read_stream(FileBytes& file, int fd, std::size_t max_bytes) {
  GrowingBuffer buffer(65536);
  read_rest(file, fd, buffer, max_bytes);
  file.data = buffer.take();
}

struct stat status_of(int fd, const std::string& name) {
  struct stat info {};
  if (fstat(fd, &info) != 0) throw system_error(ErrorKind::io, name, errno);
  return info;
}

}  // namespace

FileBytes read_file(const std::string& path, std::size_t max_bytes, FileAccess access) {
  FileBytes file;
  file.path = path;
  const std::string name = file.name();
  const OpenInput input = open_input(path);
  const int fd = input.descriptor.get();
  const bool is_regular = S_ISREG(input.info.st_mode);
  const bool is_named_pipe = S_ISFIFO(input.info.st_mode) && !input.inherited;
  if (is_named_pipe) {
    pollfd ready{fd, POLLIN, 0};
    poll(&ready, 1, kWriterMilliseconds);
  }
  const auto size = is_regular ? static_cast<std::size_t>(input.info.st_size) : 0;
  const bool maps = access == FileAccess::map || access == FileAccess::map_part;
  if (size > max_bytes && access != FileAccess::map_part) too_large(file, size, max_bytes);
  if (maps && !input.inherited && size >= kWorthMapping) file.data = map_file(fd, size, name);
  if (file.data != nullptr) {
    file.size = size;
    file.mapped = stamp_of(input.info);
    return file;
  }
  if (size > max_bytes) too_large(file, size, max_bytes);
  const bool is_settled = is_regular && access != FileAccess::growing;
  try {
    if (size > 0)
      read_regular(file, fd, size, max_bytes, is_settled);
    else
      read_stream(file, fd, max_bytes);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::data, Problem{.where = {name}, .message = "does not fit in memory"});
  }
  if (is_settled) {
    require_unchanged(name, stamp_of(input.info), status_of(fd, name));
    // The offset of an inherited descriptor may be after the first byte.
    if (file.size < size && !input.inherited)
      throw Error(ErrorKind::io, Problem{.where = {name},
                                         .message = "ended after " + std::to_string(file.size) +
                                                    " of its " + std::to_string(size) + " bytes"});
  }
  if (is_named_pipe && file.size == 0)
    throw Error(ErrorKind::no_input,
                Problem{.where = {name}, .message = "is a FIFO without a writer"});
  return file;
}

std::string FileBytes::digest() const {
  return known_digest.empty() ? digest_of(bytes()) : known_digest;
}

void fail_at(std::vector<std::string> where, std::string message) {
  throw Error(ErrorKind::data, Problem{.where = std::move(where), .message = std::move(message)});
}

void FileBytes::release_pages(std::span<const std::byte> part) const {
  if (!mapped) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + part.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace attn
