#include "attn/io/json_containers.h"

#include <algorithm>

namespace attn {
template <class T>
JsonArray JsonRow::spread(const std::vector<T>& numbers) {
  charge_->add(numbers.size() + 1, sizeof(Json));
  JsonArray array;
  array.reserve(numbers.size() + 1);
  for (const T number : numbers) array.push_back(Json{number});
  return array;
}

void JsonRow::add(Json&& element) {
  double number = 0;
  const bool is_number = element.as_number(number);
  const bool is_word = is_number && element.get<std::string>();
  const bool is_large = element.get<std::uint64_t>();  // does not fit JsonIntegers
  const auto* integer = element.get<std::int64_t>();
  auto* integers = std::get_if<JsonIntegers>(&row_.value);
  auto* floats = std::get_if<JsonFloats>(&row_.value);
  auto* array = std::get_if<JsonArray>(&row_.value);
  if (empty_ && integer) return add(*integer);
  empty_ = false;

  if (integers && integer) return add(*integer);
  if (floats && is_number) return append(*floats, std::move(number));
  if (is_number && !is_large) {
    if (integers || (array && !is_word && words_ == array->size())) return add_number(number);
  }
  if (integers) array = &row_.value.emplace<JsonArray>(spread(*integers));
  if (floats) array = &row_.value.emplace<JsonArray>(spread(*floats));
  if (is_word && words_ == array->size()) ++words_;
  append(*array, std::move(element));
}

void JsonRow::add(std::int64_t integer) {
  if (empty_) {
    constexpr std::size_t kShort = 4;  // most rows are short, and growing is slow
    charge_->add(MemoryCharge::kBlock + kShort * sizeof integer);
    row_.value.emplace<JsonIntegers>().reserve(kShort);
    empty_ = false;
  }
  if (auto* integers = std::get_if<JsonIntegers>(&row_.value)) {
    charge_->grow(*integers);
    return integers->push_back(integer);
  }
  add(Json{integer});
}

/// Converts what was added so far, integers or words such as "NaN", to floats.
void JsonRow::add_number(double number) {
  const auto* words = row_.get<JsonArray>();
  const std::size_t count = words ? words->size() : row_.get<JsonIntegers>()->size();
  charge_->add(2 * count + 1, sizeof number);
  JsonFloats floats;
  floats.reserve(count + 1);
  if (const auto* integers = row_.get<JsonIntegers>()) {
    floats.assign(integers->begin(), integers->end());
  } else {
    for (const Json& word : *words) word.as_number(floats.emplace_back());
  }
  floats.push_back(number);
  row_.value = std::move(floats);
}

bool JsonKeys::add(const JsonObject& members, const std::string& key, MemoryCharge& charge) {
  constexpr std::size_t kFew = 16;  // are compared one by one
  if (members.size() < kFew)
    return std::none_of(members.begin(), members.end(),
                        [&](const auto& member) { return member.first == key; });
  if (keys_.empty())
    for (const auto& [earlier, value] : members) insert(earlier, charge);
  return insert(key, charge);
}

bool JsonKeys::insert(const std::string& key, MemoryCharge& charge) {
  constexpr std::size_t kNode = 40;  // pointers and colour
  charge.add(kNode + sizeof key + MemoryCharge::kBlock);
  charge.add_string(key.size());
  return keys_.insert(key).second;
}

}  // namespace attn
