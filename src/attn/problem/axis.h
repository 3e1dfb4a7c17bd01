// The letters that name the axes of tensors, in tables, in checks and in messages.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace attn {

enum class Axis {
  B,        ///< batch
  H,        ///< query heads
  G,        ///< key/value heads; G divides H
  L,        ///< queries
  N,        ///< new keys
  P,        ///< past keys
  S,        ///< all keys: past, new and appended ones
  D,        ///< width of a query
  Dk,       ///< width of a key: D, unless the score function has weights between queries and keys
  Dv,       ///< width of a value
  HD,       ///< H * D: packed queries
  GD,       ///< G * Dk: packed keys
  GDv,      ///< G * Dv: packed values
  HDv,      ///< H * Dv: packed contexts
  M,        ///< width of an embedding
  Mk,       ///< width of the source of the keys
  Mv,       ///< width of the source of the values
  Mo,       ///< width of an output
  Du,       ///< width of a context times W_UV
  HDu,      ///< H * Du
  A,        ///< hidden width of the additive score functions
  DDk,      ///< D + Dk
  angles,   ///< column pairs that rotary positions rotate
  buckets,  ///< distances that share a relative bias
  layer     ///< layers of a model
};
inline constexpr std::size_t kAxisCount = static_cast<std::size_t>(Axis::layer) + 1;

/// "B", "H*Dv".
constexpr std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, kAxisCount> kNames = {
      "B",    "H", "G",  "L",  "N",  "P",  "S",    "D", "Dk",   "Dv",  "H*D",     "G*D",  "G*Dv",
      "H*Dv", "M", "Mk", "Mv", "Mo", "Du", "H*Du", "A", "D+Dk", "r/2", "buckets", "layer"};
  return kNames[static_cast<std::size_t>(axis)];
}

constexpr bool is_head(Axis axis) { return axis == Axis::H || axis == Axis::G; }
/// Whether the axis has the columns of all heads, one head after another.
constexpr bool is_packed(Axis axis) {
  return axis == Axis::HD || axis == Axis::GD || axis == Axis::GDv || axis == Axis::HDv;
}

/// Up to five axes, outermost first; usable in constexpr tables.
class AxisList {
 public:
  constexpr AxisList(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) axes_[count_++] = axis;
  }
  constexpr std::size_t size() const { return count_; }
  constexpr bool empty() const { return count_ == 0; }
  constexpr Axis operator[](std::size_t i) const { return axes_[i]; }
  constexpr Axis back() const { return axes_[count_ - 1]; }
  constexpr const Axis* begin() const { return axes_.data(); }
  constexpr const Axis* end() const { return axes_.data() + count_; }
  constexpr bool operator==(const AxisList&) const = default;

  /// The position of the axis; nullopt if it is not in the list.
  constexpr std::optional<std::size_t> find(Axis axis) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (axes_[i] == axis) return i;
    return std::nullopt;
  }
  constexpr bool contains(Axis axis) const { return find(axis).has_value(); }

  constexpr void insert(std::size_t position, Axis axis) {
    for (std::size_t i = count_++; i > position; --i) axes_[i] = axes_[i - 1];
    axes_[position] = axis;
  }
  /// Without effect if the axis is not in the list.
  constexpr void erase(Axis axis) {
    const std::optional<std::size_t> at = find(axis);
    if (!at) return;
    --count_;
    for (std::size_t i = *at; i < count_; ++i) axes_[i] = axes_[i + 1];
    axes_[count_] = {};  // lists with the same axes are equal
  }
  /// The last `count` axes.
  constexpr AxisList last(std::size_t count) const {
    AxisList axes = {};
    for (std::size_t i = count_ - count; i < count_; ++i) axes.insert(axes.size(), axes_[i]);
    return axes;
  }
  constexpr void swap(std::size_t i, std::size_t j) {
    const Axis axis = axes_[i];
    axes_[i] = axes_[j], axes_[j] = axis;
  }

  /// "(B, H, L)".
  std::string text() const {
    std::string text = "(";
    for (std::size_t i = 0; i < count_; ++i)
      text += (i == 0 ? "" : ", ") + std::string(name_of(axes_[i]));
    return text + ")";
  }

 private:
  std::array<Axis, 5> axes_{};
  std::size_t count_ = 0;
};

}  // namespace attn
