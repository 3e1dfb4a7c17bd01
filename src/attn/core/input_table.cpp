#include "attn/core/input_table.h"

#include <unordered_map>

#include "attn/base/suggestion.h"

namespace attn {
namespace {

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < kInputs.size(); ++i)
    if (kInputs[i].input != static_cast<Input>(i)) return false;
  return true;
}
static_assert(is_in_order(), "a row of kInputs is not at its enumerator's place");

}  // namespace

std::optional<Input> input_named(std::string_view name) {
  static const std::unordered_map<std::string_view, Input, NameHash> inputs = [] {
    std::unordered_map<std::string_view, Input, NameHash> all;
    for (const InputRow& row : kInputs) all.emplace(row.name, row.input);
    return all;
  }();
  const auto found = inputs.find(name);
  return found == inputs.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<std::string>& input_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const InputRow& row : kInputs) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

}  // namespace attn
