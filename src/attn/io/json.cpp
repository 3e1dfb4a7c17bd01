#include "attn/io/json.h"

#include "attn/base/numbers.h"

namespace attn {

const Json* Json::find(std::string_view key) const {
  if (const auto* object = get<JsonObject>())
    for (const auto& [name, member] : *object)
      if (name == key) return &member;
  return nullptr;
}

bool Json::is_array() const { return get<JsonArray>() || get<JsonIntegers>() || get<JsonFloats>(); }

std::string Json::kind() const {
  if (is_array()) return "an array";
  if (get<JsonObject>()) return "an object";
  if (get<std::string>()) return "a string";
  if (get<bool>()) return "a boolean";
  if (get<std::nullptr_t>()) return "null";
  return get<double>() ? "a float" : "an integer";
}

bool Json::as_number(double& number) const {
  if (const auto* word = get<std::string>()) return non_finite_named(*word, number);
  if (const auto* float_number = get<double>())
    number = *float_number;
  else if (const auto* integer = get<std::int64_t>())
    number = static_cast<double>(*integer);
  else if (const auto* large = get<std::uint64_t>())
    number = static_cast<double>(*large);
  else
    return false;
  return true;
}

}  // namespace attn
