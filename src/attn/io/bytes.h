// Aligned memory for tensors, and little-endian integers.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace attn {

/// `size` uninitialised bytes, aligned to 64 (a cache line and the widest SIMD register), so that a
/// tensor of any dtype can use them. Throws std::bad_alloc.
std::shared_ptr<std::byte> allocate_bytes(std::size_t size);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The little-endian integer at the start of `bytes`, which has at least sizeof(T) bytes.
template <std::unsigned_integral T>
T little_endian(std::span<const std::byte> bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;)
    value = static_cast<T>(static_cast<T>(value << 8) | std::to_integer<T>(bytes[i]));
  return value;
}

/// Appends `value`, least significant byte first.
template <std::unsigned_integral T>
void append_little_endian(std::string& text, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) text += static_cast<char>(value >> (8 * i) & 0xFFu);
}

}  // namespace attn
