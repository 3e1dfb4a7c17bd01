// Lookup in the tables of inputs and outputs: one row for each enumerator, in the same order.
// table_of(Id) returns the rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "attn/tensor/tensor.h"

namespace attn {

template <class Id>
concept HasTable = requires(Id id) {
  table_of(id);
};

template <HasTable Id>
constexpr std::size_t index_of(Id id) {
  return static_cast<std::size_t>(id);
}
template <HasTable Id>
constexpr const auto& row_of(Id id) {
  return table_of(id)[index_of(id)];
}
template <HasTable Id>
constexpr std::string_view name_of(Id id) {
  return row_of(id).name;
}

/// Whether each row is at the position of its enumerator, which is the row's member `id`.
template <class Rows, class Row, class Id>
constexpr bool is_in_order(const Rows& rows, Id Row::*id) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].*id != static_cast<Id>(i)) return false;
  return true;
}

/// nullopt if no row has this name.
template <HasTable Id>
std::optional<Id> find_by_name(std::string_view name);

/// The hash of each name for TensorMap::find(), known at compile time.
template <HasTable Id>
inline constexpr auto kNameHashes = [] {
  std::array<std::uint8_t, table_of(Id{}).size()> hashes{};
  for (std::size_t i = 0; i < hashes.size(); ++i)
    hashes[i] = TensorMap::hash_of(name_of(static_cast<Id>(i)));
  return hashes;
}();

/// The tensor with this name; nullptr if there is none.
template <HasTable Id>
[[gnu::always_inline]] inline const Tensor* find(const TensorMap& tensors, Id id) {
  const std::uint8_t hash = kNameHashes<Id>[index_of(id)];
  return tensors.may_contain(hash) ? tensors.find(name_of(id), hash) : nullptr;
}
template <HasTable Id>
bool contains(const TensorMap& tensors, Id id) {
  return find(tensors, id) != nullptr;
}
/// Errors: internal, if there is none.
template <HasTable Id>
const Tensor& at(const TensorMap& tensors, Id id) {
  return tensors.at(name_of(id));
}

}  // namespace attn
