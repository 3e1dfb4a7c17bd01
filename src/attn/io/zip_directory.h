// The directory of a zip archive (PKWARE, APPNOTE.TXT 6.3.10), read strictly.
//
// If an archive contradicts itself, readers disagree: about which of two end records counts,
// whether the local header or the central directory is right, and what precedes the archive. An
// archive is therefore accepted only if all of these hold:
//
//   - the last end record in the file ends with the file, and the central directory ends where the
//     end record (or the zip64 end record before it) starts;
//   - the central directory has as many entries as the end record states, and no other bytes;
//   - local headers, data and data descriptors cover the file from its first byte to the central
//     directory, without a gap or an overlap;
//   - each local header has the name, method, checksum and sizes of its central entry. A member
//     whose sizes follow its data (flag bit 3) has a data descriptor with the same values, and
//     zeros or the same values in its local header;
//   - names are unique.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attn/io/read_budget.h"

namespace attn {

struct ZipMember {
  std::string name;  ///< UTF-8, decoded from code page 437 without flag bit 11
  std::uint16_t flags = 0;
  std::uint16_t method = 0;                ///< of compression
  std::uint32_t checksum = 0;              ///< CRC-32 of the expanded bytes
  std::uint64_t size = 0;                  ///< expanded
  std::span<const std::byte> packed = {};  ///< as stored in the archive

  bool is_encrypted() const { return (flags & (1u << 0 | 1u << 6 | 1u << 13)) != 0; }
};

struct ZipDirectory {
  std::vector<ZipMember> members;  ///< in the order of the central directory
  std::string comment;
};

struct ZipLimits {
  std::size_t members = 65536;
  std::size_t name = 1024;  ///< bytes
};

/// Takes time and memory in proportion to the size of the archive; the memory is charged to
/// `charge`. `name` is used in errors. Errors: data.
ZipDirectory read_zip_directory(std::span<const std::byte> archive, const std::string& name,
                                const ZipLimits& limits, MemoryCharge& charge);

/// The first expanded bytes of a deflated member, written to `out`: as many as `out` has, or fewer,
/// if there are fewer or the rest is corrupt.
std::span<const std::byte> expand_start(const ZipMember& member, std::span<std::byte> out);

/// The expanded bytes of a stored or deflated member, written to `out`, which has member.size
/// bytes. Returns a description of the error, or "" if size and checksum are right.
std::string expand(const ZipMember& member, std::byte* out);

}  // namespace attn
