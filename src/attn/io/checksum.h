// CRC-32, as zip archives keep it, of bytes that need not come in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace attn {

/// Of `bytes` behind others whose checksum is `start`; 0 is that of nothing.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t start = 0);

/// Of what has checksum `first`, followed by `bytes` bytes of checksum `second`.
std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::uint64_t bytes);

/// Puts the checksums of parts together. Threads may add at once.
class PartChecksums {
 public:
  void add(std::uint64_t offset, std::uint64_t bytes, std::uint32_t checksum);
  /// Of all parts in the order of their offsets; they are to follow one another from 0 to `bytes`.
  /// Errors: internal, where they do not.
  std::uint32_t all(std::uint64_t bytes) const;

 private:
  struct Part {
    std::uint64_t offset, bytes;
    std::uint32_t checksum;
  };
  mutable std::mutex mutex_;
  std::vector<Part> parts_;
};

}  // namespace attn
