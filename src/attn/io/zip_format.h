// Constants of the zip format: APPNOTE.TXT of PKWARE, sections 4.3.7 (local header), 4.3.9 (data
// descriptor), 4.3.12 (central directory) and 4.3.14 to 4.3.16 (its end).
#pragma once

#include <cstddef>
#include <cstdint>

namespace attn::zip {

// Signatures of records.
inline constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
inline constexpr std::uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
inline constexpr std::uint32_t kDescriptor = 0x08074b50;

// Sizes of records in bytes, without names and extra fields.
inline constexpr std::size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22;
inline constexpr std::size_t kEnd64Size = 56, kLocator64Size = 20;

// Values that refer to a zip64 field or record.
inline constexpr std::uint64_t kFull16 = 0xFFFF, kFull32 = 0xFFFFFFFF;

// Flags of a member.
inline constexpr std::uint16_t kHasDescriptor = 1 << 3;
inline constexpr std::uint16_t kUtf8 = 1 << 11;  ///< the name is UTF-8

// Compression methods.
inline constexpr std::uint16_t kStored = 0, kDeflated = 8;

}  // namespace attn::zip
