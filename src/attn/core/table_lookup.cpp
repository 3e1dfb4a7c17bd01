#include "attn/core/table_lookup.h"

#include <unordered_map>

#include "attn/base/name.h"
#include "attn/core/output_table.h"

namespace attn {

template <HasTable Id>
std::optional<Id> find_by_name(std::string_view name) {
  static const std::unordered_map<std::string_view, Id, NameHash> ids = [] {
    std::unordered_map<std::string_view, Id, NameHash> all;
    for (const auto& row : table_of(Id{})) all.emplace(row.name, static_cast<Id>(all.size()));
    return all;
  }();
  const auto found = ids.find(name);
  return found == ids.end() ? std::nullopt : std::optional(found->second);
}

template std::optional<Input> find_by_name(std::string_view name);
template std::optional<Output> find_by_name(std::string_view name);

}  // namespace attn
