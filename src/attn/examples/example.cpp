#include "attn/examples/example.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <new>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/io/file.h"
#include "attn/io/json_parse.h"
#include "attn/io/open_file.h"
#include "attn/job/field_value.h"
#include "attn/job/fields.h"
#include "attn/job/print_settings.h"

namespace attn {
namespace {

namespace fs = std::filesystem;

void require_memory(const std::error_code& error) {
  if (error == std::errc::not_enough_memory) throw std::bad_alloc();
}

bool is_example(const fs::directory_entry& folder) {
  std::error_code error;
  const bool exists = fs::exists(folder.path() / "example.json", error);
  require_memory(error);
  return exists;
}

/// False also for a folder that cannot be read.
bool contains_examples(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (is_example(*entry)) return true;
  require_memory(error);
  return false;
}

/// The examples installed with this program, or in its source tree; "" if there are none.
fs::path find_near_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path installed = program.parent_path().parent_path() / "share/attn/examples";
  if (contains_examples(installed)) return installed;
  for (fs::path above = program.parent_path(); above != above.root_path();
       above = above.parent_path())
    if (contains_examples(above / "data/examples")) return above / "data/examples";
  return {};
}

}  // namespace

std::string examples_folder(const std::string& given) {
  const char* variable = std::getenv("ATTN_DATA");
  const std::string named = !given.empty() ? given : variable != nullptr ? variable : "";
  if (!named.empty()) {
    if (contains_examples(named)) return named;
    throw Error(ErrorKind::no_input,
                Problem{.where = {given.empty() ? "ATTN_DATA" : "--data", named},
                        .message = "contains no example (a folder with an example.json)"});
  }
  const fs::path found = find_near_program();
  if (!found.empty()) return found.string();
  throw Error(
      ErrorKind::no_input,
      "no worked examples in ../share/attn/examples or in data/examples of a parent folder of "
      "the program; set their folder with --data DIR or ATTN_DATA");
}

std::vector<std::string> example_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (is_example(*entry)) names.push_back(entry->path().filename().string());
  require_memory(error);
  if (error) throw system_error(ErrorKind::no_input, folder, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

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
      fail("unknown key '" + printable(key) + "'" + did_you_mean(key, known, NameKind::other));
}

std::vector<JsonNode> JsonNode::elements() const {
  const auto array = json_->get<JsonArray>();
  if (array == nullptr) fail_kind("an array");
  std::vector<JsonNode> nodes;
  for (std::size_t i = 0; i < array->size(); ++i)
    nodes.emplace_back((*array)[i], document_, path_ + "[" + std::to_string(i) + "]");
  return nodes;
}

std::vector<std::string> JsonNode::texts() const { return texts_of(elements(), &JsonNode::text); }

const std::string& JsonNode::text() const {
  if (const auto text = json_->get<std::string>()) return *text;
  fail_kind("a string");
}

std::size_t JsonNode::count() const {
  const auto integer = json_->get<std::int64_t>();
  if (integer == nullptr || *integer < 0 || *integer > std::numeric_limits<std::int32_t>::max())
    fail_kind("an integer from 0");
  return static_cast<std::size_t>(*integer);
}

void JsonNode::fail(const std::string& what) const { fail_data(location() + ": " + what); }

void JsonNode::fail_kind(const std::string& expected) const {
  fail("expected " + expected + ", found " + json_->kind());
}

const JsonObject& JsonNode::object() const {
  if (const auto object = json_->get<JsonObject>()) return *object;
  fail_kind("an object");
}

namespace {

namespace fs = std::filesystem;

template <class Enum>
using EnumNames = std::vector<std::pair<std::string, Enum>>;

const EnumNames<Recipe::Kind> kRecipeKinds = {{"job", Recipe::Kind::job},
                                              {"svd", Recipe::Kind::svd},
                                              {"tensor", Recipe::Kind::tensor},
                                              {"shares", Recipe::Kind::shares}};

const EnumNames<Form> kForms = {
    {"print", Form::print}, {"repr", Form::repr},   {"scalar", Form::scalar},
    {"list", Form::list},   {"tuple", Form::tuple}, {"dimensions", Form::dimensions},
    {"size", Form::size},   {"csv", Form::csv},     {"text", Form::text}};

/// The one key of `node` that is in the table; it determines the kind of the object.
template <class Enum>
std::pair<std::string, Enum> kind_of(const JsonNode& node, const EnumNames<Enum>& table) {
  std::vector<std::pair<std::string, Enum>> found;
  for (const auto& entry : table)
    if (node.find(entry.first)) found.push_back(entry);
  if (found.size() == 1) return found[0];
  std::string words;
  for (const auto& entry : table) words += (words.empty() ? "" : ", ") + entry.first;
  node.fail("expected one of the keys " + words + ", found " + std::to_string(found.size()));
}

std::vector<Reference> references(const JsonNode& node) {
  if (!node.is_array()) return {parse_reference(node.text(), node.location())};
  std::vector<Reference> list;
  for (const JsonNode& element : node.elements())
    list.push_back(parse_reference(element.text(), element.location()));
  return list;
}

/// Keys that a recipe may have besides its kind.
std::vector<std::string> recipe_keys(Recipe::Kind kind, const std::string& key) {
  if (kind == Recipe::Kind::svd) return {key, "rank"};
  if (kind == Recipe::Kind::job || kind == Recipe::Kind::tensor) return {key, "dtype"};
  return {key};
}

Recipe read_recipe(const JsonNode& node, const std::string& name) {
  const auto [key, kind] = kind_of(node, kRecipeKinds);
  node.require_only(recipe_keys(kind, key));
  Recipe recipe;
  recipe.name = name;
  recipe.kind = kind;
  if (const auto rank = node.find("rank")) recipe.rank = rank->count();
  if (const auto dtype = node.find("dtype")) {
    recipe.dtype = dtype_named(dtype->text());
    if (!recipe.dtype) dtype->fail("expected a dtype, found '" + printable(dtype->text()) + "'");
  }
  if (kind == Recipe::Kind::shares)
    recipe.operand = parse_reference(node.at(key).text(), node.at(key).location());
  else
    recipe.file = node.at(key).text();
  return recipe;
}

/// Adds print options to those of the whole example. Their keys and values are those of a job.
void read_print_options(const JsonNode& node, Document& settings) {
  std::vector<std::string> known;
  for (const Field& field : print_option_fields())
    known.push_back(field.key.substr(kPrintOptions.size()));
  node.require_only(known);
  for (const std::string& name : node.keys()) {
    const JsonNode value = node.at(name);
    const std::string key = std::string(kPrintOptions) + name;
    if (std::optional<Problem> problem = problem_with(*find_field(key), value.json())) {
      problem->where = {value.location()};
      fail_data(*problem);
    }
    settings.set({key, value.json(), value.location(), ""});
  }
}

std::vector<std::string> allowed_keys(Form form, const std::string& key) {
  switch (form) {
    case Form::text:
    case Form::dimensions:
      return {key};
    case Form::scalar:
    case Form::size:
      return {key, "label"};
    case Form::csv:
      return {key, "corner", "rows", "columns"};
    case Form::print:
      return {key, "label", "print_options"};
    case Form::repr:
    case Form::list:
    case Form::tuple:
      break;
  }
  return {key, "print_options"};
}

/// `settings` are the print options of the example.
Show read_show(const JsonNode& node, Document settings) {
  const auto [key, form] = kind_of(node, kForms);
  node.require_only(allowed_keys(form, key));
  const JsonNode value = node.at(key);
  Show show;
  show.form = form;
  if (form == Form::text) {
    show.text = value.text();
    return show;
  }
  const bool several = form == Form::list || form == Form::tuple || form == Form::dimensions;
  if (value.is_array() && !several) value.fail_kind("a reference");
  show.values = references(value);
  show.elements = !value.is_array();
  if (const auto label = node.find("label")) show.label = label->text();
  if (const auto options = node.find("print_options")) read_print_options(*options, settings);
  show.print_options = print_options_of(settings);
  if (form == Form::csv) {
    show.corner = node.at("corner").text();
    show.rows = node.at("rows").texts();
    show.columns = node.at("columns").texts();
  }
  return show;
}

Cell read_cell(const JsonNode& node, const Document& settings) {
  node.require_only({"cell", "show"});
  Cell cell;
  cell.label = node.at("cell").text();
  for (const JsonNode& show : node.at("show").elements())
    cell.shows.push_back(read_show(show, settings));
  return cell;
}

}  // namespace

Example read_example(const std::string& folder) {
  const std::string path = (fs::path(folder) / "example.json").string();
  const Json json = parse_json(read_file(path).text(), path);
  const JsonNode document(json, path);
  document.require_only({"title", "source", "section", "url", "licence", "note", "view",
                         "print_options", "results", "cells"});

  Example example;
  example.name = fs::path(folder).filename().string();
  example.folder = folder;
  example.title = document.at("title").text();
  example.source = document.at("source").text();
  for (const auto& [key, member] :
       std::vector<std::pair<const char*, std::string Example::*>>{{"section", &Example::section},
                                                                   {"url", &Example::url},
                                                                   {"licence", &Example::licence},
                                                                   {"note", &Example::note},
                                                                   {"view", &Example::view}})
    if (const auto text = document.find(key)) example.*member = text->text();
  Document settings;
  if (const auto options = document.find("print_options")) read_print_options(*options, settings);
  const JsonNode results = document.at("results");
  for (const std::string& name : results.keys())
    example.recipes.push_back(read_recipe(results.at(name), name));
  for (const JsonNode& cell : document.at("cells").elements())
    example.cells.push_back(read_cell(cell, settings));
  return example;
}

}  // namespace attn
