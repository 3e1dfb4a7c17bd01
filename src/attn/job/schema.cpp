// The JSON Schema of a job document, made from the table of fields.
#include <map>

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
  if (field.minimum)
    schema.emplace_back(field.above ? "exclusiveMinimum" : "minimum", Json{*field.minimum});
  return object(std::move(schema));
}

/// The alternatives that a field's value has.
JsonArray alternatives(const Field& field) {
  JsonArray any;
  switch (field.form) {
    case FieldForm::tensor:
      any.push_back(reference("tensor"));
      break;
    case FieldForm::integer:
      any.push_back(bounded(field, "integer"));
      break;
    case FieldForm::number:
      any.push_back(bounded(field, "number"));
      break;
    case FieldForm::boolean:
      any.push_back(object({{"type", text("boolean")}}));
      break;
    case FieldForm::integers:
      any.push_back(list_schema(field, bounded(field, "integer")));
      break;
    case FieldForm::strings:
      any.push_back(list_schema(field, object({{"type", text("string")}})));
      break;
    case FieldForm::seed:
      any.push_back(reference("seed"));
      any.push_back(object({{"type", text("array")},
                            {"items", reference("seed")},
                            {"minItems", Json{std::int64_t{1}}}}));
      break;
    case FieldForm::word:
      break;
  }
  if (!field.words.empty()) any.push_back(words_schema(field.words));
  return any;
}

Json field_schema(const Field& field) {
  JsonObject schema = {{"description", Json{field.what}}};
  JsonArray any = alternatives(field);
  if (any.size() > 1)
    schema.emplace_back("anyOf", Json{std::move(any)});
  else
    for (auto& member : std::get<JsonObject>(any[0].value)) schema.push_back(member);
  return object(std::move(schema));
}

/// One number of a seed.
Json seed_schema() {
  JsonArray any = {object({{"type", text("integer")}, {"minimum", Json{std::int64_t{0}}}}),
                   object({{"type", text("string")}, {"pattern", text("^[0-9]{1,10000}$")}})};
  return object({{"anyOf", Json{std::move(any)}}});
}

Json draw_schema(const std::string& method) {
  JsonObject arguments;
  for (const std::string& argument : draw_arguments(method))
    arguments.emplace_back(argument, object({}));
  Json inner = object({{"type", text("object")},
                       {"properties", object(std::move(arguments))},
                       {"additionalProperties", Json{false}}});
  return object({{"type", text("object")},
                 {"properties", object({{method, std::move(inner)}})},
                 {"required", Json{JsonArray{Json{method}}}},
                 {"additionalProperties", Json{false}}});
}

Json numbers_schema() {
  JsonArray any = {object({{"type", text("number")}}), object({{"type", text("boolean")}}),
                   words_schema({"NaN", "Infinity", "-Infinity"}),
                   object({{"type", text("array")}, {"items", reference("numbers")}})};
  return object({{"anyOf", Json{std::move(any)}}});
}

Json tensor_schema() {
  JsonArray draws;
  for (const std::string& method : draw_methods()) draws.push_back(draw_schema(method));
  JsonArray any = {
      reference("numbers"),
      object({{"type", text("string")},
              {"minLength", Json{std::int64_t{1}}},
              {"description", text("\"FILE\" or \"FILE#NAME\"")}}),
      object({{"description", text("a draw from the seed's stream")},
              {"oneOf", Json{std::move(draws)}}}),
  };
  return object({{"description", text("nested numbers, a file, or a random draw")},
                 {"anyOf", Json{std::move(any)}}});
}

/// Properties in the table's order; "position.base" goes into object "position".
JsonObject properties() {
  JsonObject top;
  for (const Field& field : job_fields()) {
    const std::size_t dot = field.key.find('.');
    if (dot == std::string::npos) {
      top.emplace_back(field.key, field_schema(field));
      continue;
    }
    const std::string group = field.key.substr(0, dot);
    if (top.empty() || top.back().first != group)
      top.emplace_back(group, object({{"type", text("object")},
                                      {"additionalProperties", Json{false}},
                                      {"properties", object({})}}));
    auto& members = std::get<JsonObject>(top.back().second.value);
    std::get<JsonObject>(members.back().second.value)
        .emplace_back(field.key.substr(dot + 1), field_schema(field));
  }
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
                                           {"seed", seed_schema()}})}}),
                 0);
}

}  // namespace attn
