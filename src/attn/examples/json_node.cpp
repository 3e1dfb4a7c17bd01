#include "attn/examples/json_node.h"

#include <algorithm>
#include <limits>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"

namespace attn {

JsonNode JsonNode::at(const std::string& key) const {
  if (const auto member = find(key)) return *member;
  fail("expected the key '" + key + "'");
}

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  for (const auto& [name, value] : object())
    if (name == key) return JsonNode(value, document_, path_.empty() ? key : path_ + "." + key);
  return std::nullopt;
}

std::vector<std::string> JsonNode::keys() const {
  std::vector<std::string> names;
  for (const auto& member : object()) names.push_back(member.first);
  return names;
}

void JsonNode::require_only(const std::vector<std::string>& known) const {
  for (const std::string& key : keys())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail("unknown key '" + printable(key) + "'" + did_you_mean(key, known));
}

std::vector<JsonNode> JsonNode::elements() const {
  const auto* array = json_->get<JsonArray>();
  if (array == nullptr) fail_kind("an array");
  std::vector<JsonNode> nodes;
  for (std::size_t i = 0; i < array->size(); ++i)
    nodes.emplace_back((*array)[i], document_, path_ + "[" + std::to_string(i) + "]");
  return nodes;
}

std::vector<std::string> JsonNode::texts() const {
  std::vector<std::string> texts;
  for (const JsonNode& element : elements()) texts.push_back(element.text());
  return texts;
}

const std::string& JsonNode::text() const {
  if (const auto* text = json_->get<std::string>()) return *text;
  fail_kind("a string");
}

bool JsonNode::boolean() const {
  if (const auto* boolean = json_->get<bool>()) return *boolean;
  fail_kind("true or false");
}

std::size_t JsonNode::count() const {
  const auto* integer = json_->get<std::int64_t>();
  if (integer == nullptr || *integer < 0 || *integer > std::numeric_limits<std::int32_t>::max())
    fail_kind("an integer from 0");
  return static_cast<std::size_t>(*integer);
}

void JsonNode::fail(const std::string& what) const {
  throw Error(ErrorKind::data, location() + ": " + what);
}

void JsonNode::fail_kind(const std::string& expected) const {
  fail("expected " + expected + ", found " + json_->kind());
}

const JsonObject& JsonNode::object() const {
  if (const auto* object = json_->get<JsonObject>()) return *object;
  fail_kind("an object");
}

}  // namespace attn
