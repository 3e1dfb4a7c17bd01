#include "attn/job/labels.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "attn/base/text.h"
#include "attn/problem/layout.h"

namespace attn {
namespace {

constexpr bool is_key(Axis axis) { return axis == Axis::S || axis == Axis::N || axis == Axis::P; }
constexpr bool is_embedding(Axis axis) {
  return axis == Axis::M || axis == Axis::Mk || axis == Axis::Mv;
}

std::string_view word_of(Axis axis, bool has_embeddings) {
  if (has_embeddings && (axis == Axis::L || is_key(axis))) return "token";
  return axis == Axis::layer  ? "layer"
         : axis == Axis::B    ? "batch"
         : is_head(axis)      ? "head"
         : axis == Axis::L    ? "query"
         : is_key(axis)       ? "key"
         : is_embedding(axis) ? "embedding"
                              : "feature";
}

std::vector<std::string> words_of(const AxisList& axes) {
  std::vector<std::string> words;
  for (const Axis axis : axes) words.emplace_back(word_of(axis, is_embedding(axes.back())));
  return words;
}

/// Whether an input has a row or a column for each token.
bool has_tokens(const AxisList& axes) {
  for (const Axis axis : axes)
    if (axis == Axis::L || is_key(axis)) return true;
  return false;
}

/// The axes of a tensor of which only the name and the shape are known.
AxisList assumed_axes(const Request& request, const Shape& shape) {
  AxisList axes = {};
  const Input* input = std::get_if<Input>(&request);
  if (const Gradient* const gradient = std::get_if<Gradient>(&request)) input = &gradient->of;
  if (input != nullptr) {
    axes = user_axes(*input, shape, Options{}, true);
    if (!has_tokens(axes)) return {};
  } else {
    axes = row_of(std::get<Output>(request)).axes;
    if (is_packed(axes.back()) && shape.size() == 4) axes = {Axis::B, Axis::H, Axis::L, Axis::Dv};
    if (axes.size() + 1 == shape.size()) axes.insert(0, Axis::layer);
  }
  return axes.size() < shape.size() ? AxisList{} : axes.last(shape.size());
}

Json words_json(const AxisList& axes) {
  JsonArray words;
  for (std::string& word : words_of(axes)) words.push_back(Json{std::move(word)});
  return Json{std::move(words)};
}

/// Whether the words of a file can be those of axes: each is known, and only features and
/// embeddings repeat. Layers are the first axis.
bool are_axes(const std::vector<std::string>& words) {
  constexpr std::string_view kOnce[] = {"layer", "batch", "head", "query", "key", "token"};
  const auto count = [&](std::string_view word) {
    return static_cast<std::size_t>(std::count(words.begin(), words.end(), word));
  };
  std::size_t known = count("embedding") + count("feature");
  for (const std::string_view word : kOnce) {
    if (count(word) > 1) return false;
    known += count(word);
  }
  return known == words.size() && (count("layer") == 0 || words[0] == "layer");
}

/// Empty unless there is a word for each axis.
std::vector<std::string> recorded_axes(const Json& made_by, const std::string& name,
                                       std::size_t rank) {
  const Json* const axes = made_by.find(kAxesMember);
  const Json* const of_tensor = axes == nullptr ? nullptr : axes->find(text_of_name(name));
  const auto list = of_tensor == nullptr ? nullptr : of_tensor->get<JsonArray>();
  std::vector<std::string> words;
  if (list == nullptr || list->size() != rank) return words;
  for (const Json& item : *list) {
    const auto word = item.get<std::string>();
    if (word == nullptr) return {};
    words.push_back(*word);
  }
  return are_axes(words) ? words : std::vector<std::string>{};
}

}  // namespace

void record_labels(const Plan& plan, const std::vector<std::int64_t>& layers, JsonObject& made_by) {
  JsonObject axes;
  for (const PlannedOutput& output : plan.outputs) {
    if (output.axes.empty() || output.axes == assumed_axes(output.request, output.shape)) continue;
    axes.emplace_back(name_of(output.request), words_json(output.axes));
  }
  if (!axes.empty()) made_by.emplace_back(kAxesMember, Json{std::move(axes)});
  if (layers.empty()) return;
  made_by.emplace_back(kLayersMember, Json{JsonIntegers(layers.begin(), layers.end())});
}

Labels labels_in(const Json& made_by, const std::string& name, const Shape& shape) {
  Labels labels{recorded_axes(made_by, name, shape.size()), {}};
  if (labels.axes.empty())
    if (const std::optional<Request> request = request_named(name))
      labels.axes = words_of(assumed_axes(*request, shape));
  if (labels.axes.empty() || labels.axes[0] != "layer") return labels;
  const Json* const layers = made_by.find(kLayersMember);
  const auto numbers = layers == nullptr ? nullptr : layers->get<JsonIntegers>();
  if (numbers != nullptr && numbers->size() == shape[0])
    labels.layers.assign(numbers->begin(), numbers->end());
  return labels;
}

AxisList letters_of(const Labels& labels) {
  AxisList letters = {};
  for (const std::string& word : labels.axes)
    letters.insert(letters.size(), word == "layer"   ? Axis::layer
                                   : word == "batch" ? Axis::B
                                   : word == "head"  ? Axis::H
                                   : word == "query" ? Axis::L
                                   : word == "key"   ? Axis::S
                                   : word == "token" ? Axis::N
                                                     : Axis::D);
  return letters;
}

}  // namespace attn
