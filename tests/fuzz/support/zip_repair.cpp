#include "support/zip_repair.h"

#include <zlib.h>

#include <array>
#include <cstdint>
#include <string_view>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace attn::fuzz {
namespace {

using Bytes = std::span<unsigned char>;

constexpr std::size_t kLocalSize = 30, kCentralSize = 46;  // without name and extra field

std::uint32_t u16(Bytes bytes, std::size_t at) { return bytes[at] | bytes[at + 1] << 8u; }
std::uint32_t u32(Bytes bytes, std::size_t at) {
  return u16(bytes, at) | u16(bytes, at + 2) << 16u;
}
void put_u32(Bytes bytes, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i)
    bytes[at + i] = static_cast<unsigned char>(value >> (8 * i) & 0xFFu);
}

/// The decompressed bytes of raw deflate data, up to the first error; valid until the next call.
Bytes inflated(Bytes packed) {
  static std::array<unsigned char, std::size_t{64} << 10> out;
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return {};
  stream.next_in = packed.data();
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  return Bytes(out).first(stream.total_out);
}

std::uint32_t checksum(Bytes bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
}

void repair_member(Bytes archive, Bytes central) {
  constexpr std::uint32_t kStored = 0, kDeflated = 8;
  const std::uint32_t method = u16(central, 10), packed = u32(central, 20), at = u32(central, 42);
  if (at > archive.size() || archive.size() - at < kLocalSize) return;
  const Bytes local = archive.subspan(at);
  const std::size_t start = kLocalSize + u16(local, 26) + u16(local, 28);
  if (start > local.size() || packed > local.size() - start) return;
  const Bytes data = local.subspan(start, packed);
  std::uint32_t sum = 0;
  if (method == kStored) sum = checksum(data);
  if (method == kDeflated) {
    const Bytes expanded = inflated(data);
    sum = checksum(expanded);
    put_u32(central, 24, static_cast<std::uint32_t>(expanded.size()));
    put_u32(local, 22, static_cast<std::uint32_t>(expanded.size()));
  }
  put_u32(central, 16, sum);
  put_u32(local, 14, sum);
}

}  // namespace

void repair_checksums(Bytes archive) {
  constexpr std::string_view kCentral = "PK\1\2";
  const std::string_view text(reinterpret_cast<const char*>(archive.data()), archive.size());
  for (std::size_t at = text.find(kCentral); at != std::string_view::npos;
       at = text.find(kCentral, at + 4)) {
    if (archive.size() - at >= kCentralSize) repair_member(archive, archive.subspan(at));
  }
}

std::size_t mutate_archive(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (seed % 8 != 0) repair_checksums({data, size});
  return size;
}

}  // namespace attn::fuzz
