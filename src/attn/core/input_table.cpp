#include "attn/core/input_table.h"

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
  for (const InputRow& row : kInputs)
    if (same_name(row.name, name)) return row.input;
  return std::nullopt;
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
