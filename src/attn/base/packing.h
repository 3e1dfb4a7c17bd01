// Numbers and texts packed into a string, for messages between processes of the same program.
// Numbers keep the byte order of the machine; texts begin with their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace attn {

template <class T>
requires std::is_trivially_copyable_v<T>
void pack(std::string& out, const T& number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

inline void pack_text(std::string& out, std::string_view text) {
  pack(out, std::uint64_t{text.size()});
  out.append(text);
}

/// Packed bytes that this program does not write: the sender's memory must be corrupt.
struct BadMessage : std::runtime_error {
  BadMessage() : std::runtime_error("invalid message from another process") {}
};

/// Takes numbers and texts off the front. Throws BadMessage if too few bytes are left.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  /// A text, as a part of the packed bytes.
  std::string_view text_view() { return take(number<std::uint64_t>()); }
  std::string text() { return std::string(text_view()); }
  bool empty() const { return bytes_.empty(); }
  std::size_t size() const { return bytes_.size(); }  ///< bytes that are left

 private:
  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size()) throw BadMessage();
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
};

}  // namespace attn
