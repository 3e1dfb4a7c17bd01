// A JSON value with its path in the document, for strict reading: a missing or unknown key or a
// wrong type is Error(data) with the path, "example.json: cells[2].show[0]: expected …".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/io/json.h"

namespace attn {

class JsonNode {
 public:
  /// `json` must outlive the node; `path` is its path in the document, "" for the root.
  JsonNode(const Json& json, std::string document, std::string path = "")
      : json_(&json), document_(std::move(document)), path_(std::move(path)) {}

  std::string location() const { return path_.empty() ? document_ : document_ + ": " + path_; }

  /// Members of an object.
  JsonNode at(const std::string& key) const;
  std::optional<JsonNode> find(const std::string& key) const;
  std::vector<std::string> keys() const;
  void require_only(const std::vector<std::string>& known) const;

  bool is_array() const { return json_->is_array(); }
  std::vector<JsonNode> elements() const;
  std::vector<std::string> texts() const;

  const std::string& text() const;
  bool boolean() const;
  std::size_t count() const;  ///< an integer from 0 to 2^31 - 1

  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_kind(const std::string& expected) const;

 private:
  const JsonObject& object() const;

  const Json* json_;
  std::string document_, path_;
};

}  // namespace attn
