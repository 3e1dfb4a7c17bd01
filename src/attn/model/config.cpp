#include "attn/model/config.h"

#include <algorithm>
#include <cmath>

#include "attn/base/error.h"
#include "attn/base/text.h"

namespace attn {

const Json* Config::find(const char* key) const {
  const Json* value = json_->find(key);
  return value != nullptr && value->get<std::nullptr_t>() == nullptr ? value : nullptr;
}

std::string Config::text(const char* key, const std::string& otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  const auto text = value->get<std::string>();
  if (text == nullptr) refuse(key, "expected a string, found " + value->kind());
  return *text;
}

bool Config::flag(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise && !mentions(key);
  const auto flag = value->get<bool>();
  if (flag == nullptr) refuse(key, "expected true or false, found " + value->kind());
  return *flag;
}

std::optional<double> Config::number(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  double number = 0;
  if (!value->as_number(number) || !std::isfinite(number))
    refuse(key, "expected a finite number, found " + value->kind());
  return number;
}

std::int64_t Config::count(const char* key, std::optional<std::int64_t> otherwise) const {
  constexpr double kMost = 1e9;
  const std::optional<double> value = number(key);
  if (!value && otherwise) return *otherwise;
  if (!value) refuse(key, "expected a whole number, found none");
  if (*value != std::trunc(*value) || *value < 1 || *value > kMost)
    refuse(key, "expected a whole number from 1 to 1000000000, found " + to_json(*find(key)));
  return static_cast<std::int64_t>(*value);
}

std::int64_t Config::count(std::span<const char* const> keys) const {
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const char* each) { return has(each); });
  return count(key == keys.end() ? keys.back() : *key);
}

const std::string* Config::text_at(const char* key, std::size_t index) const {
  const Json* value = find(key);
  if (value == nullptr) return nullptr;
  const auto items = value->get<JsonArray>();
  if (items == nullptr) refuse(key, "expected a list of strings, found " + value->kind());
  if (items->empty()) return nullptr;
  if (index >= items->size())
    refuse(key, "has entries for only " + counted(items->size(), "layer"));
  const auto text = (*items)[index].get<std::string>();
  if (text == nullptr)
    refuse(key, "expected a list of strings, found " + (*items)[index].kind() + " in it");
  return &*text;
}

std::vector<double> Config::numbers(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  if (const auto floats = value->get<JsonFloats>()) return *floats;
  if (const auto integers = value->get<JsonIntegers>()) return {integers->begin(), integers->end()};
  refuse(key, "expected a list of numbers, found " + value->kind());
}

std::optional<Config> Config::object(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->get<JsonObject>() == nullptr)
    refuse(key, "expected an object, found " + value->kind());
  return Config(*value, name_ + ": " + key);
}

void Config::refuse(const std::string& key, const std::string& message) const {
  fail_data({.where = {name_}, .subject = key, .message = message});
}

}  // namespace attn
