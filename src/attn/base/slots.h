// Optional values for the members of an enumeration, most of which are absent.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

namespace attn {

/// A std::optional<Value> for each of kCount keys, which index_of() numbers. An absent value takes
/// one byte. References stay valid. An object that was moved from can only be assigned or
/// destroyed.
template <class Key, std::size_t kCount, class Value>
class Slots {
  static_assert(kCount < 256);

 public:
  Slots() = default;
  Slots(const Slots& other) : slot_of_(other.slot_of_), count_(other.count_) {
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      if (other.blocks_[i]) blocks_[i] = std::make_unique<Block>(*other.blocks_[i]);
  }
  Slots(Slots&&) = default;
  Slots& operator=(const Slots& other) { return *this = Slots(other); }
  Slots& operator=(Slots&&) = default;
  ~Slots() = default;

  const std::optional<Value>& operator[](Key key) const {
    const unsigned char slot = slot_of_[index_of(key)];
    return slot == 0 ? kNone : at(slot);
  }
  std::optional<Value>& operator[](Key key) {
    unsigned char& slot = slot_of_[index_of(key)];
    if (slot == 0) {
      if (count_ % kBlock == 0) blocks_[count_ / kBlock] = std::make_unique<Block>();
      slot = ++count_;
    }
    return at(slot);
  }

 private:
  static constexpr std::size_t kBlock = 8;
  using Block = std::array<std::optional<Value>, kBlock>;

  std::optional<Value>& at(unsigned char slot) const {
    return (*blocks_[(slot - 1U) / kBlock])[(slot - 1U) % kBlock];
  }

  static inline const std::optional<Value> kNone;
  std::array<unsigned char, kCount> slot_of_{};  ///< from 1; 0: absent
  unsigned char count_ = 0;
  std::array<std::unique_ptr<Block>, (kCount + kBlock - 1) / kBlock> blocks_;
};

}  // namespace attn
