// Checksums. CRC-32 as in zip archives, also for parts in any order; digests of files: 128-bit
// XXH3, as printed by `xxh128sum`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace attn {

/// The checksum of `bytes` appended to data with the checksum `start` (0: no data).
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t start = 0);

/// The checksum of data with checksum `first` followed by `bytes` bytes with checksum `second`.
std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::uint64_t bytes);

/// Combines the checksums of parts. Thread-safe.
class PartChecksums {
 public:
  void add(std::uint64_t offset, std::uint64_t bytes, std::uint32_t checksum);
  /// Adds parts that packed() of another process returned.
  void add(const std::string& packed);
  std::string packed() const;
  /// The checksum of all parts in the order of their offsets. They must cover 0 to `bytes` without
  /// gaps or overlaps. Errors: internal.
  std::uint32_t all(std::uint64_t bytes) const;

 private:
  struct Part {
    std::uint64_t offset, bytes;
    std::uint32_t checksum;
  };
  mutable std::mutex mutex_;
  std::vector<Part> parts_;
};

/// "xxh128:<32 hex digits>" of all bytes.
std::string digest_of(std::span<const std::byte> bytes);

/// The same for bytes that are added in several parts.
class Digest {
 public:
  Digest();
  Digest(Digest&&) noexcept;
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  ~Digest();
  void add(std::span<const std::byte> bytes);
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attn
