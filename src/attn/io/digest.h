// Digests of files: XXH3, 128 bits, as printed by `xxh128sum`.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace attn {

/// "xxh128:<32 hex digits>" of all bytes.
std::string digest_of(std::span<const std::byte> bytes);

/// The same for bytes that arrive in several parts.
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
