#include "attn/job/random_arguments.h"

#include <algorithm>
#include <limits>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/io/json_tensor.h"
#include "attn/random/generator.h"

namespace attn {
namespace {

constexpr std::size_t kMostElements = std::size_t{1} << 32;  // 32 GiB of float64

[[noreturn]] void fail(Problem problem) { throw Error(ErrorKind::data, std::move(problem)); }

}  // namespace

RandomArguments::RandomArguments(const Json& json, const std::vector<std::string>& known,
                                 const Tensor* values)
    : json_(json), values_(values) {
  const auto* members = json.get<JsonObject>();
  if (members == nullptr) fail({.expected = "an object of arguments", .found = json.kind()});
  const auto is_known = [&](const std::string& key) {
    return std::find(known.begin(), known.end(), key) != known.end();
  };
  const auto check = [&](const std::string& key) {
    if (!is_known(key) && !(key == "size" && is_known("shape")))
      fail({.message = "unknown argument '" + printable(key) + "'" + did_you_mean(key, known)});
  };
  for (const auto& [key, value] : *members) check(key);
  if (values_ != nullptr) check("values");
  if (find("shape") != nullptr && find("size") != nullptr)
    fail({.message = "'size' and 'shape' are the same argument"});
}

bool RandomArguments::has(const std::string& key) const {
  return find(key) != nullptr || (key == "values" && values_ != nullptr);
}

int128 RandomArguments::integer(const std::string& key,
                                std::optional<std::int64_t> fallback) const {
  if (fallback && !has(key)) return *fallback;
  const Json& value = need(key);
  if (const auto* number = value.get<std::int64_t>()) return *number;
  if (const auto* number = value.get<std::uint64_t>()) return *number;
  if (const auto* text =
          value.get<std::string>()) {  // does not fit 64 bits: "18446744073709551616"
    const auto words = entropy_words(*text);
    if (words && words->size() <= 3) {
      int128 number = 0;
      for (std::size_t i = words->size(); i-- > 0;) number = number << 32 | (*words)[i];
      return number;
    }
  }
  wrong(key, "a whole number", value);
}

std::int64_t RandomArguments::count(const std::string& key) const {
  const int128 number = integer(key);
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max())
    wrong(key, "0 to 2147483647", need(key));
  return static_cast<std::int64_t>(number);
}

double RandomArguments::number(const std::string& key, double fallback) const {
  double result = fallback;
  const Json* value = find(key);
  if (value != nullptr && !value->as_number(result)) wrong(key, "a number", *value);
  return result;
}

bool RandomArguments::boolean(const std::string& key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (const bool* given = value->get<bool>()) return *given;
  wrong(key, "true or false", *value);
}

std::optional<std::vector<double>> RandomArguments::numbers(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const Tensor tensor = cast(tensor_from_json(*value, key), DType::f64);
  if (tensor.rank() != 1) wrong(key, "a list of numbers", *value);
  const auto data = tensor.data<double>();
  return std::vector<double>(data.begin(), data.end());
}

Shape RandomArguments::shape() const {
  const Json* value = find("shape");
  if (value == nullptr) value = find("size");
  if (value == nullptr) return {};
  std::vector<std::int64_t> extents;
  const auto* empty = value->get<JsonArray>();
  if (const auto* one = value->get<std::int64_t>())
    extents = {*one};
  else if (const auto* list = value->get<JsonIntegers>())
    extents = *list;
  else if (empty == nullptr || !empty->empty())
    wrong("shape", "a list of whole numbers", *value);
  Shape shape;
  for (const std::int64_t extent : extents) {
    if (extent < 0)
      fail({.subject = "shape", .expected = "sizes >= 0", .found = std::to_string(extent)});
    shape.push_back(static_cast<std::size_t>(extent));
  }
  if (element_count(shape) > kMostElements)
    fail({.subject = "shape", .expected = "at most 2^32 elements", .found = to_string(shape)});
  return shape;
}

DType RandomArguments::dtype(DType fallback) const {
  const Json* value = find("dtype");
  if (value == nullptr) return fallback;
  const auto* name = value->get<std::string>();
  const auto dtype = name == nullptr ? std::nullopt : dtype_named(*name);
  if (!dtype) wrong("dtype", "a dtype such as \"int64\"", *value);
  return *dtype;
}

Tensor RandomArguments::values() const {
  return values_ != nullptr ? *values_ : tensor_from_json(need("values"), "values");
}

const Json* RandomArguments::find(const std::string& key) const { return json_.find(key); }

const Json& RandomArguments::need(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) fail({.expected = "the argument '" + key + "'", .found = "none"});
  return *value;
}

void RandomArguments::wrong(const std::string& key, const std::string& expected,
                            const Json& found) const {
  fail({.subject = key, .expected = expected, .found = found.kind()});
}

}  // namespace attn
