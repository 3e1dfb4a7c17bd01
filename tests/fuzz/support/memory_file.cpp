#include "support/memory_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fuzz.h"

namespace attn::fuzz {

// Without MFD_CLOEXEC: attn takes descriptors with that flag for its own, which /dev/fd/N may not
// name.
MemoryFile::MemoryFile() : descriptor_(memfd_create("fuzz", 0)) {
  require(descriptor_ >= 0, "a file in memory");
}

MemoryFile::~MemoryFile() { close(descriptor_); }

void MemoryFile::set(std::string_view bytes) {
  const auto size = static_cast<ssize_t>(bytes.size());
  require(ftruncate(descriptor_, 0) == 0 && lseek(descriptor_, 0, SEEK_SET) == 0, "emptied");
  require(write(descriptor_, bytes.data(), bytes.size()) == size, "filled");
  require(lseek(descriptor_, 0, SEEK_SET) == 0, "at its start");
}

std::string MemoryFile::bytes() const {
  struct stat info {};
  require(fstat(descriptor_, &info) == 0, "its size");
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  require(pread(descriptor_, bytes.data(), bytes.size(), 0) == info.st_size, "its bytes");
  return bytes;
}

std::string written(const std::function<void(OutputFile&)>& write) {
  static MemoryFile memory;
  memory.set("");
  OutputFile out("/dev/fd/" + std::to_string(memory.descriptor()), {});
  write(out);
  out.commit();
  return memory.bytes();
}

}  // namespace attn::fuzz
