#include "attn/examples/example.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/examples/json_node.h"
#include "attn/io/file.h"
#include "attn/io/json_parse.h"

namespace attn {
namespace {

namespace fs = std::filesystem;

template <class Enum>
using Words = std::vector<std::pair<std::string, Enum>>;

const Words<Recipe::Kind> kRecipeKinds = {{"job", Recipe::Kind::job},
                                          {"svd", Recipe::Kind::svd},
                                          {"sum_of_product", Recipe::Kind::sum_of_product}};

const Words<Form> kForms = {{"print", Form::print},   {"repr", Form::repr},
                            {"scalar", Form::scalar}, {"list", Form::list},
                            {"tuple", Form::tuple},   {"dimensions", Form::dimensions},
                            {"csv", Form::csv},       {"text", Form::text}};

const Words<PrintOptions::FloatMode> kFloatModes = {
    {"fixed", PrintOptions::FloatMode::fixed},
    {"unique", PrintOptions::FloatMode::unique},
    {"maxprec", PrintOptions::FloatMode::maxprec},
    {"maxprec_equal", PrintOptions::FloatMode::maxprec_equal}};

template <class Enum>
std::vector<std::string> words_of(const Words<Enum>& table) {
  std::vector<std::string> words;
  for (const auto& entry : table) words.push_back(entry.first);
  return words;
}

/// The one key of `node` that is in the table; it determines the kind of the object.
template <class Enum>
std::pair<std::string, Enum> kind_of(const JsonNode& node, const Words<Enum>& table) {
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

Recipe read_recipe(const JsonNode& node, const std::string& name) {
  const auto [key, kind] = kind_of(node, kRecipeKinds);
  node.require_only(kind == Recipe::Kind::svd ? std::vector<std::string>{key, "rank"}
                                              : std::vector<std::string>{key});
  Recipe recipe;
  recipe.name = name;
  recipe.kind = kind;
  if (const auto rank = node.find("rank")) recipe.rank = rank->count();
  if (kind == Recipe::Kind::sum_of_product) {
    recipe.operands = references(node.at(key));
    if (recipe.operands.size() != 2) node.at(key).fail_kind("two references");
  } else {
    recipe.file = node.at(key).text();
  }
  return recipe;
}

PrintOptions read_style(const JsonNode& node) {
  node.require_only({"precision", "suppress", "floatmode"});
  PrintOptions style;
  if (const auto precision = node.find("precision"))
    style.precision = static_cast<int>(precision->count());
  if (const auto suppress = node.find("suppress")) style.suppress = suppress->boolean();
  if (const auto mode = node.find("floatmode")) {
    const auto known = std::find_if(kFloatModes.begin(), kFloatModes.end(),
                                    [&](const auto& entry) { return entry.first == mode->text(); });
    if (known == kFloatModes.end())
      mode->fail("unknown floatmode '" + printable(mode->text()) + "'" +
                 did_you_mean(mode->text(), words_of(kFloatModes)));
    style.floatmode = known->second;
  }
  return style;
}

std::vector<std::string> allowed_keys(Form form, const std::string& key) {
  if (form == Form::text || form == Form::scalar || form == Form::dimensions) return {key};
  if (form == Form::csv) return {key, "corner", "rows", "columns"};
  return {key, "style"};
}

Show read_show(const JsonNode& node) {
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
  if (const auto style = node.find("style")) show.style = read_style(*style);
  if (form == Form::csv) {
    show.corner = node.at("corner").text();
    show.rows = node.at("rows").texts();
    show.columns = node.at("columns").texts();
  }
  return show;
}

Cell read_cell(const JsonNode& node) {
  node.require_only({"cell", "show"});
  Cell cell;
  cell.label = node.at("cell").text();
  for (const JsonNode& show : node.at("show").elements()) cell.shows.push_back(read_show(show));
  return cell;
}

}  // namespace

Example read_example(const std::string& folder) {
  const std::string path = (fs::path(folder) / "example.json").string();
  const Json json = parse_json(read_file(path).text(), path);
  const JsonNode document(json, path);
  document.require_only({"title", "source", "note", "results", "cells"});

  Example example;
  example.name = fs::path(folder).filename().string();
  example.folder = folder;
  example.title = document.at("title").text();
  example.source = document.at("source").text();
  if (const auto note = document.find("note")) example.note = note->text();
  const JsonNode results = document.at("results");
  for (const std::string& name : results.keys())
    example.recipes.push_back(read_recipe(results.at(name), name));
  for (const JsonNode& cell : document.at("cells").elements())
    example.cells.push_back(read_cell(cell));
  return example;
}

}  // namespace attn
