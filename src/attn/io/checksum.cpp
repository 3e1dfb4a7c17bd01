#include "attn/io/checksum.h"

#include <zlib.h>

#include <algorithm>

#include "attn/tensor/error.h"

namespace attn {

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t start) {
  return static_cast<std::uint32_t>(
      crc32_z(start, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::uint64_t bytes) {
  return static_cast<std::uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(bytes)));
}

void PartChecksums::add(std::uint64_t offset, std::uint64_t bytes, std::uint32_t checksum) {
  const std::lock_guard lock(mutex_);
  parts_.push_back({offset, bytes, checksum});
}

std::uint32_t PartChecksums::all(std::uint64_t bytes) const {
  std::vector<Part> parts = parts_;
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.offset < b.offset; });
  std::uint32_t checksum = 0;
  std::uint64_t end = 0;
  for (const Part& part : parts) {
    if (part.offset != end) break;
    checksum = crc32_of_both(checksum, part.checksum, part.bytes);
    end += part.bytes;
  }
  if (end != bytes)
    throw Error(ErrorKind::internal, "expected parts of " + std::to_string(bytes) +
                                         " bytes, found them up to " + std::to_string(end));
  return checksum;
}

}  // namespace attn
