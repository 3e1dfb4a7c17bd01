#include "attn/io/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "attn/base/text.h"

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
