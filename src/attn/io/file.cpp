#include "attn/io/file.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

#include "attn/base/error.h"
#include "attn/base/memory_limit.h"
#include "attn/base/text.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/mapped_file.h"
#include "attn/io/used_files.h"

namespace attn {
namespace {

constexpr int kWriterMilliseconds = 2000;                      // time for a FIFO to get a writer
constexpr std::size_t kWorthMapping = std::size_t{128} << 10;  // smaller files are read as fast

[[noreturn]] void too_large(const FileBytes& file, std::size_t size, std::size_t max_bytes) {
  fail_data(
      {.where = {file.name()},
       .expected = "at most " + std::to_string(max_bytes) + (max_bytes == 1 ? " byte" : " bytes"),
       .found = std::to_string(size) + " or more",
       .hint = "--max-memory raises the limit"});
}

/// A buffer for a file of unknown size. It grows in place or by moving pages, not by copying, which
/// would need memory for both copies.
class GrowingBuffer {
 public:
  explicit GrowingBuffer(std::size_t capacity) : memory_(capacity), capacity_(capacity) {
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
    memory_.add(capacity_);
    void* const start = mremap(start_, capacity_, 2 * capacity_, MREMAP_MAYMOVE);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(start);
    capacity_ *= 2;
  }

  std::shared_ptr<const std::byte> take() {
    const auto memory = std::make_shared<MappedMemory>(std::move(memory_));
    std::shared_ptr<const std::byte> shared(start_,
                                            [size = capacity_, memory](const std::byte* start) {
                                              munmap(const_cast<std::byte*>(start), size);
                                            });
    start_ = nullptr;
    return shared;
  }

 private:
  MappedMemory memory_;
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

/// The same bytes, which are counted as memory while they exist.
std::shared_ptr<const std::byte> charged_bytes(std::shared_ptr<const std::byte> mapped,
                                               std::size_t size) {
  const auto memory = std::make_shared<MappedMemory>(size);
  const std::byte* const start = mapped.get();
  return {start, [mapped = std::move(mapped), memory](const std::byte*) {}};
}

}  // namespace

FileBytes read_file(const std::string& path, std::size_t max_bytes, FileAccess access) {
  OpenInput input = open_input(path);
  note_input(input.info);
  return read_file(std::move(input), path, max_bytes, access);
}

FileBytes read_file(OpenInput input, const std::string& path, std::size_t max_bytes,
                    FileAccess access) {
  FileBytes file;
  file.path = path;
  const std::string& name = input.name;
  const int fd = input.descriptor.get();
  const bool is_regular = S_ISREG(input.info.st_mode);
  const bool is_named_pipe = S_ISFIFO(input.info.st_mode) && !input.inherited;
  if (is_named_pipe) {
    pollfd ready{fd, POLLIN, 0};
    poll(&ready, 1, kWriterMilliseconds);
  }
  const bool maps = is_regular && !input.inherited &&
                    (access == FileAccess::map || access == FileAccess::map_part) &&
                    static_cast<std::size_t>(input.info.st_size) >= kWorthMapping;
  if (maps) input.info = settled_status(input.descriptor, name);
  if (is_regular && !input.inherited && is_settled(input.info)) file.version = stamp_of(input.info);
  const auto size = is_regular ? static_cast<std::size_t>(input.info.st_size) : 0;
  if (size > max_bytes && access != FileAccess::map_part) too_large(file, size, max_bytes);
  if (maps) file.data = map_file(input.descriptor, input.info, name);
  if (file.data != nullptr) {
    if (access == FileAccess::map) file.data = charged_bytes(std::move(file.data), size);
    file.size = size;
    file.is_mapped = true;
    return file;
  }
  if (size > max_bytes) too_large(file, size, max_bytes);
  const bool is_whole = is_regular && access != FileAccess::growing;
  try {
    if (size > 0)
      read_regular(file, fd, size, max_bytes, is_whole);
    else
      read_stream(file, fd, max_bytes);
  } catch (const std::bad_alloc&) {
    throw path_error(ErrorKind::data, name, "does not fit in memory");
  }
  if (is_whole) {
    require_unchanged(name, stamp_of(input.info), status_of(fd, name));
    // The offset of an inherited descriptor may be after the first byte.
    if (file.size < size && !input.inherited)
      throw path_error(ErrorKind::io, name,
                       "ended after " + std::to_string(file.size) + " of its " +
                           std::to_string(size) + " bytes");
  }
  if (is_named_pipe && file.size == 0)
    throw path_error(ErrorKind::no_input, name, "is a FIFO without a writer");
  return file;
}

std::string FileBytes::digest() const {
  return known_digest.empty() ? digest_of(bytes()) : known_digest;
}

namespace {

/// The number of bytes read to `to`; 0 at the end of the file.
std::size_t read_block(const OpenInput& file, std::span<std::byte> to) {
  for (;;) {
    const ssize_t count = read(file.descriptor.get(), to.data(), to.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) throw system_error(ErrorKind::io, file.name, errno);
  }
}

}  // namespace

std::string digest_of_file(const OpenInput& file) {
  constexpr std::size_t kBlock = std::size_t{256} << 10;
  const auto size = static_cast<std::size_t>(file.info.st_size);
  std::vector<std::byte> block(std::clamp<std::size_t>(size, 1, kBlock));
  Digest digest;
  while (const std::size_t count = read_block(file, block))
    digest.add(std::span(block).first(count));
  require_unchanged(file.name, stamp_of(file.info), status_of(file.descriptor.get(), file.name));
  return digest.text();
}

std::string start_of_file(const OpenInput& file, std::size_t size) {
  std::string start(size, '\0');
  start.resize(read_block(file, std::as_writable_bytes(std::span(start))));
  return start;
}

void fail_at(std::vector<std::string> where, std::string message) {
  fail_data({.where = std::move(where), .message = std::move(message)});
}

void FileBytes::release_pages(std::span<const std::byte> part) const {
  if (!is_mapped) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + part.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace attn
