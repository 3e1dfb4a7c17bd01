#include "attn/problem/table_lookup.h"

#include <array>
#include <bit>
#include <cstdint>

#include "attn/base/name.h"
#include "attn/problem/output_table.h"

namespace attn {

namespace {

/// The rows of a table by the hashes of their names. A row whose place is taken is in the next one
/// that is free.
template <HasTable Id>
constexpr auto kPlaces = [] {
  std::array<std::uint16_t, std::bit_ceil(2 * table_of(Id{}).size())> places{};  // 0: free
  for (std::size_t row = 0; row < table_of(Id{}).size(); ++row) {
    std::size_t at = NameHash{}(table_of(Id{})[row].name) % places.size();
    while (places[at] != 0) at = (at + 1) % places.size();
    places[at] = static_cast<std::uint16_t>(row + 1);
  }
  return places;
}();

}  // namespace

template <HasTable Id>
std::optional<Id> find_by_name(std::string_view name) {
  constexpr const auto& places = kPlaces<Id>;
  for (std::size_t at = NameHash{}(name) % places.size(); places[at] != 0;
       at = (at + 1) % places.size())
    if (const auto id = static_cast<Id>(places[at] - 1); same_name(name_of(id), name)) return id;
  return std::nullopt;
}

template std::optional<Input> find_by_name(std::string_view name);
template std::optional<Output> find_by_name(std::string_view name);

}  // namespace attn
