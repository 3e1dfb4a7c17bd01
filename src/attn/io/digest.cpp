#include "attn/io/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>

#include "attn/base/error.h"
#include "attn/base/packing.h"
#include "attn/base/text.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attn {
namespace {

std::uint32_t plain_crc32(std::span<const std::byte> bytes, std::uint32_t start) {
  return static_cast<std::uint32_t>(
      crc32_z(start, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

#if defined(__x86_64__)

// The bytes are the coefficients of a polynomial over GF(2); its CRC is the remainder modulo P. So
// the first 128 bits can be replaced by their product with x^n mod P, added n bits later: one
// carry-less multiplication for each half (Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel 2009).

/// x^n mod P in CRC-32 bit order, times x, because products of reflected values are one bit short.
consteval std::int64_t power(int n) {
  std::uint32_t remainder = 0x80000000;
  for (int i = 0; i < n; ++i) remainder = remainder >> 1 ^ ((remainder & 1) != 0 ? 0xEDB88320 : 0);
  return std::int64_t{remainder} << 1;
}

[[gnu::target("pclmul,sse4.1")]] __m128i load(const std::byte* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

/// `front` moved to the position of `next` and added to it.
[[gnu::target("pclmul,sse4.1")]] __m128i folded(__m128i front, __m128i powers, __m128i next) {
  return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(front, powers, 0x00),
                                           _mm_clmulepi64_si128(front, powers, 0x11)));
}

/// `bytes` has at least 64 bytes.
[[gnu::target("pclmul,sse4.1")]] std::uint32_t folded_crc32(std::span<const std::byte> bytes,
                                                            std::uint32_t start) {
  const __m128i by_512 = _mm_set_epi64x(power(512 - 32), power(512 + 32));
  const __m128i by_128 = _mm_set_epi64x(power(128 - 32), power(128 + 32));
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  __m128i front[4] = {load(at), load(at + 16), load(at + 32), load(at + 48)};
  front[0] = _mm_xor_si128(front[0], _mm_cvtsi32_si128(static_cast<int>(~start)));
  for (at += 64; end - at >= 64; at += 64)
    for (int i = 0; i < 4; ++i) front[i] = folded(front[i], by_512, load(at + 16 * i));
  __m128i rest = front[0];
  for (int i = 1; i < 4; ++i) rest = folded(rest, by_128, front[i]);
  for (; end - at >= 16; at += 16) rest = folded(rest, by_128, load(at));
  std::byte remainder[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(remainder), rest);
  // `rest` includes the start value, so zlib must not add its own initial value.
  return plain_crc32({at, end}, plain_crc32(remainder, 0xFFFFFFFF));
}

bool can_fold() {
  static const bool can = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return can;
}

#endif

}  // namespace

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t start) {
#if defined(__x86_64__)
  if (bytes.size() >= 64 && can_fold()) return folded_crc32(bytes, start);
#endif
  return plain_crc32(bytes, start);
}

std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::uint64_t bytes) {
  return static_cast<std::uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(bytes)));
}

void PartChecksums::add(std::uint64_t offset, std::uint64_t bytes, std::uint32_t checksum) {
  const std::lock_guard lock(mutex_);
  parts_.push_back({offset, bytes, checksum});
}

void PartChecksums::add(const std::string& packed) {
  Unpacker in(packed);
  const std::lock_guard lock(mutex_);
  while (!in.empty()) parts_.push_back(in.number<Part>());
}

std::string PartChecksums::packed() const {
  std::string text;
  const std::lock_guard lock(mutex_);
  for (const Part& part : parts_) pack(text, part);
  return text;
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
                                         " bytes, found parts up to " + std::to_string(end));
  return checksum;
}

}  // namespace attn

#define XXH_INLINE_ALL

namespace attn {
namespace {

std::string text_of_hash(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text = "xxh128:";
  text.reserve(text.size() + 2 * sizeof canonical.digest);
  for (const unsigned char byte : canonical.digest) append_hex(text, byte);
  return text;
}

}  // namespace

struct Digest::State {
  XXH3_state_t hash;
};

std::string digest_of(std::span<const std::byte> bytes) {
  return text_of_hash(XXH3_128bits(bytes.data(), bytes.size()));
}

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }

Digest::Digest(Digest&&) noexcept = default;

Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

std::string Digest::text() const { return text_of_hash(XXH3_128bits_digest(&state_->hash)); }

}  // namespace attn
