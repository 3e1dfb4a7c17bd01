// config.json of a model, as Hugging Face's transformers writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/io/json_write.h"

namespace attn {

/// Facts of a config.json, or of an object in it. A key with the value null counts as absent; as a
/// flag, it is false.
/// Errors: data, naming the file and the key, for a value of another type.
class Config {
 public:
  /// `json` is an object and outlives this; `name` is used in errors.
  Config(const Json& json, std::string name) : json_(&json), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  /// The value of a key, or nullptr.
  const Json* find(const char* key) const;
  bool has(const char* key) const { return find(key) != nullptr; }
  /// Whether the key is present, even if its value is null.
  bool mentions(const char* key) const { return json_->find(key) != nullptr; }

  bool is_empty() const { return json_->get<JsonObject>()->empty(); }

  std::string text(const char* key, const std::string& otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::optional<double> number(const char* key) const;
  double number(const char* key, double otherwise) const { return number(key).value_or(otherwise); }
  /// A whole number from 1. Errors: also if the key is absent and there is no `otherwise`.
  std::int64_t count(const char* key, std::optional<std::int64_t> otherwise = {}) const;
  /// Likewise, of the first of these keys that is present. Errors name the last if none is.
  std::int64_t count(std::span<const char* const> keys) const;
  /// The string at `index` of a list; nullptr if the list is absent or empty. Errors: also if it is
  /// shorter.
  const std::string* text_at(const char* key, std::size_t index) const;
  std::vector<double> numbers(const char* key) const;
  /// An object; nullopt if absent.
  std::optional<Config> object(const char* key) const;

  /// Throws Error(data) "CONFIG: KEY: MESSAGE".
  [[noreturn]] void refuse(const std::string& key, const std::string& message) const;

 private:
  const Json* json_;
  std::string name_;
};

}  // namespace attn
