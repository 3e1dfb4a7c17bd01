#include "attn/io/json_row.h"

namespace attn {
namespace {

template <class T>
JsonArray spread(const std::vector<T>& numbers) {
  JsonArray array;
  array.reserve(numbers.size() + 1);
  for (const T number : numbers) array.push_back(Json{number});
  return array;
}

}  // namespace

void JsonRow::add(Json&& element) {
  double number = 0;
  const bool is_number = element.as_number(number);
  const bool is_word = is_number && element.get<std::string>();
  const bool is_large = element.get<std::uint64_t>();  // no place for it among JsonIntegers
  const auto* integer = element.get<std::int64_t>();
  auto* integers = std::get_if<JsonIntegers>(&row_.value);
  auto* floats = std::get_if<JsonFloats>(&row_.value);
  auto* array = std::get_if<JsonArray>(&row_.value);
  if (empty_ && integer) return add(*integer);
  empty_ = false;

  if (integers && integer) return integers->push_back(*integer);
  if (floats && is_number) return floats->push_back(number);
  if (is_number && !is_large) {
    if (integers || (array && !is_word && words_ == array->size())) return add_number(number);
  }
  if (integers) array = &row_.value.emplace<JsonArray>(spread(*integers));
  if (floats) array = &row_.value.emplace<JsonArray>(spread(*floats));
  if (is_word && words_ == array->size()) ++words_;
  array->push_back(std::move(element));
}

void JsonRow::add(std::int64_t integer) {
  if (empty_) {
    row_.value.emplace<JsonIntegers>().reserve(4);  // most rows are short; growing takes long
    empty_ = false;
  }
  if (auto* integers = std::get_if<JsonIntegers>(&row_.value)) return integers->push_back(integer);
  add(Json{integer});
}

/// Makes floats of all that is there: integers, or words that turn out to be numbers.
void JsonRow::add_number(double number) {
  JsonFloats floats;
  if (const auto* integers = row_.get<JsonIntegers>()) {
    floats.assign(integers->begin(), integers->end());
  } else {
    for (const Json& word : *row_.get<JsonArray>()) word.as_number(floats.emplace_back());
  }
  floats.push_back(number);
  row_.value = std::move(floats);
}

}  // namespace attn
