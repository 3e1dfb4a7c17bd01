// Writes the rows of one tensor into a file in any order, from several threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "attn/io/digest.h"
#include "attn/io/staged_file.h"

namespace attn {

class RowWriter {
 public:
  /// Rows of `row_bytes` bytes, starting at byte `start` of `file`. checksum() requires
  /// `with_checksum`.
  RowWriter(OutputFile& file, std::uint64_t start, std::size_t row_bytes, bool with_checksum);

  /// Writes rows `first` to `first + count`, `stride` bytes apart in memory, in the file's dtype
  /// and byte order. Errors: io.
  void write(std::size_t first, std::size_t count, const std::byte* rows, std::size_t stride);

  /// What another process needs to write rows of this region, for the output of this name.
  SharedRegion shared(const std::string& output, DType dtype) const;
  /// What this object has written, for add_written() of the process that shared the region.
  std::string written_parts() const;
  void add_written(const std::string& parts);

  std::uint64_t start() const { return start_; }
  std::uint64_t written() const { return written_; }  ///< bytes
  std::uint32_t checksum(std::uint64_t bytes) const { return checksums_.all(bytes); }

 private:
  std::uint32_t checksum_of(std::size_t count, const std::byte* rows, std::size_t stride) const;
  void write_gathered(std::uint64_t offset, std::size_t count, const std::byte* rows,
                      std::size_t stride);
  void write_scattered(std::uint64_t offset, std::size_t count, const std::byte* rows,
                       std::size_t stride);

  OutputFile& file_;
  const std::uint64_t start_;
  const std::size_t row_bytes_;
  const bool with_checksum_;
  std::atomic<std::uint64_t> written_{0};
  PartChecksums checksums_;
};

}  // namespace attn
