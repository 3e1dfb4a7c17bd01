// What says that bytes have changed: XXH3, 128 bits, as `xxh128sum` prints it.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace attn {

/// "xxh128:<32 hex digits>" of all the bytes at once.
std::string digest_of(std::span<const std::byte> bytes);

/// The same of bytes that come one part after another.
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
