#include "attn/job/job_schema.h"

#include <set>

#include "attn/io/json_write.h"
#include "attn/job/fields.h"
#include "attn/job/random_spec.h"

namespace attn {
namespace {

Json text(const char* value) { return Json{std::string(value)}; }

Json object(JsonObject members) { return Json{std::move(members)}; }

Json reference(const char* name) {
  return object({{"$ref", Json{std::string("#/$defs/") + name}}});
}

Json words_schema(const std::vector<std::string>& words) {
  JsonArray list;
  for (const std::string& word : words) list.push_back(Json{word});
  return object({{"enum", Json{list}}});
}

Json list_schema(const Field& field, Json items) {
  JsonObject schema = {{"type", text("array")}, {"items", std::move(items)}};
  if (field.length) {
    schema.emplace_back("minItems", Json{static_cast<std::int64_t>(*field.length)});
    schema.emplace_back("maxItems", Json{static_cast<std::int64_t>(*field.length)});
  }
  if (!field.may_be_empty) schema.emplace_back("minItems", Json{std::int64_t{1}});
  return object(std::move(schema));
}

Json bounded(const Field& field, const char* type) {
  JsonObject schema = {{"type", text(type)}};
  if (field.min)
    schema.emplace_back(field.exclusive_min ? "exclusiveMinimum" : "minimum", Json{*field.min});
  if (field.max) schema.emplace_back("maximum", Json{*field.max});
  if (field.less_than) schema.emplace_back("exclusiveMaximum", Json{*field.less_than});
  return object(std::move(schema));
}

/// The alternative schemas of a field's value.
JsonArray alternatives(const Field& field) {
  JsonArray any;
  switch (field.type) {
    case FieldType::tensor:
      any.push_back(field.names_tensors ? object({{"type", text("object")},
                                                  {"additionalProperties", reference("tensor")}})
                                        : reference("tensor"));
      break;
    case FieldType::integer:
      any.push_back(bounded(field, "integer"));
      break;
    case FieldType::number:
      any.push_back(bounded(field, "number"));
      break;
    case FieldType::boolean:
      any.push_back(object({{"type", text("boolean")}}));
      break;
    case FieldType::integers:
      any.push_back(list_schema(field, bounded(field, "integer")));
      break;
    case FieldType::strings:
      any.push_back(list_schema(field, object({{"type", text("string")}})));
      break;
    case FieldType::seed:
      any.push_back(reference("seed"));
      any.push_back(object({{"type", text("array")},
                            {"items", reference("seed")},
                            {"minItems", Json{std::int64_t{1}}}}));
      break;
    case FieldType::text:
      any.push_back(object({{"type", text("string")}}));
      break;
    case FieldType::draws:
      any.push_back(object({{"type", text("array")}, {"items", reference("draw")}}));
      break;
    case FieldType::word:
      break;
  }
  if (field.single)
    any.push_back(field.type == FieldType::integers ? bounded(field, "integer")
                                                    : object({{"type", text("string")}}));
  if (!field.words.empty()) any.push_back(words_schema(field.words));
  return any;
}

Json field_schema(const Field& field) {
  JsonObject schema = {{"description", Json{std::string(field.help)}}};
  JsonArray any = alternatives(field);
  if (any.size() > 1)
    schema.emplace_back("anyOf", Json{std::move(any)});
  else
    for (auto& member : *any[0].get<JsonObject>()) schema.push_back(member);
  return object(std::move(schema));
}

/// One number of a seed.
Json seed_schema() {
  JsonArray any = {object({{"type", text("integer")}, {"minimum", Json{std::int64_t{0}}}}),
                   object({{"type", text("string")}, {"pattern", text("^[0-9]{1,10000}$")}})};
  return object({{"anyOf", Json{std::move(any)}}});
}

/// The object of a method's arguments.
Json arguments_schema(const std::string& method) {
  JsonObject arguments;
  for (const std::string& argument : random_arguments(method))
    arguments.emplace_back(argument, object({}));
  return object({{"type", text("object")},
                 {"properties", object(std::move(arguments))},
                 {"additionalProperties", Json{false}}});
}

Json random_schema(const std::string& method) {
  return object({{"type", text("object")},
                 {"properties", object({{method, arguments_schema(method)}})},
                 {"required", Json{JsonArray{Json{method}}}},
                 {"additionalProperties", Json{false}}});
}

/// A step of "draws".
Json draw_schema() {
  JsonArray seeds = {reference("seed"),
                     object({{"type", text("array")}, {"items", reference("seed")}})};
  JsonArray targets = {words_schema(input_names()), object({{"type", text("array")},
                                                            {"items", words_schema(input_names())},
                                                            {"minItems", Json{std::int64_t{1}}}})};
  JsonObject members = {{"seed", object({{"anyOf", Json{std::move(seeds)}}})},
                        {"to", object({{"anyOf", Json{std::move(targets)}}})}};
  for (const std::string& method : random_methods())
    members.emplace_back(method, arguments_schema(method));
  return object({{"type", text("object")},
                 {"properties", object(std::move(members))},
                 {"additionalProperties", Json{false}},
                 {"minProperties", Json{std::int64_t{1}}},
                 {"maxProperties", Json{std::int64_t{2}}}});
}

Json numbers_schema() {
  JsonArray any = {object({{"type", text("number")}}), object({{"type", text("boolean")}}),
                   words_schema({"NaN", "Infinity", "-Infinity"}),
                   object({{"type", text("array")}, {"items", reference("numbers")}})};
  return object({{"anyOf", Json{std::move(any)}}});
}

Json tensor_schema() {
  JsonArray random;
  for (const std::string& method : random_methods())
    if (!draws_layer(method)) random.push_back(random_schema(method));
  JsonArray any = {
      reference("numbers"),
      object({{"type", text("string")},
              {"minLength", Json{std::int64_t{1}}},
              {"description", text("\"FILE\" or \"FILE#NAME\"")}}),
      object({{"description", text("a random tensor")}, {"oneOf", Json{std::move(random)}}}),
  };
  return object({{"description", text("nested numbers, a file, or a random tensor")},
                 {"anyOf", Json{std::move(any)}}});
}

/// The object that holds the keys of a group, such as "rotary". If the group's name is another
/// spelling of its key "kind", the value may also be the word of that key.
Json group_schema(const std::string& group) {
  JsonObject schema = {{"type", text("object")}};
  const Field* kind = find_field_by_other_key(group);
  if (kind != nullptr) {
    std::string pattern;
    for (const std::string& word : kind->words) pattern += (pattern.empty() ? "^(" : "|") + word;
    schema = {{"type", Json{JsonArray{text("object"), text("string")}}},
              {"pattern", Json{pattern + ")$"}}};
  }
  schema.emplace_back("additionalProperties", Json{false});
  schema.emplace_back("properties", object({}));
  return object(std::move(schema));
}

/// The schema of another spelling of a key.
Json other_key_schema(const Field& field) {
  std::string reference = "#/properties/" + field.key;
  if (const std::size_t dot = reference.find('.'); dot != std::string::npos)
    reference.replace(dot, 1, "/properties/");
  return object({{"description", Json{"other spelling of " + field.key}},
                 {"$ref", Json{std::move(reference)}}});
}

/// Properties in the table's order; "position.base" is in the object "position". Other spellings
/// follow.
JsonObject properties() {
  JsonObject top = {{"$schema", object({{"type", text("string")}})}};
  std::set<std::string> groups;
  for (const Field& field : job_fields()) {
    const std::size_t dot = field.key.find('.');
    if (dot == std::string::npos) {
      top.emplace_back(field.key, field_schema(field));
      continue;
    }
    const std::string group = field.key.substr(0, dot);
    if (groups.insert(group).second) top.emplace_back(group, group_schema(group));
    auto& members = *top.back().second.get<JsonObject>();
    members.back().second.get<JsonObject>()->emplace_back(field.key.substr(dot + 1),
                                                          field_schema(field));
  }
  for (const Field& field : job_fields())
    for (const std::string& other : field.other_keys())
      if (!groups.contains(other)) top.emplace_back(other, other_key_schema(field));
  return top;
}

}  // namespace

std::string job_schema() {
  return to_json(object({{"$schema", text("https://json-schema.org/draft/2020-12/schema")},
                         {"$id", text("urn:attn:job:1")},
                         {"title", text("A job of attn")},
                         {"type", text("object")},
                         {"additionalProperties", Json{false}},
                         {"properties", object(properties())},
                         {"$defs", object({{"tensor", tensor_schema()},
                                           {"numbers", numbers_schema()},
                                           {"seed", seed_schema()},
                                           {"draw", draw_schema()}})}}),
                 0);
}

}  // namespace attn
