#include "attn/job/random_arguments.h"

#include <algorithm>
#include <limits>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/io/json_tensor.h"

namespace attn {

const std::vector<RandomArgument>& random_argument_table() {
  using enum ArgumentKind;
  static const std::vector<RandomArgument> table = {
      {"shape", sizes, "N,M,...", "shape, such as 3,3; default: a single number", true},
      {"low", number, "X", "smallest value; default: 0", true},
      {"high", number, "X", "end of the range, exclusive", true},
      {"dtype", word, "DTYPE", "dtype of the result, such as int8, bool or float32", true},
      {"loc", number, "X", "mean; default: 0", true},
      {"scale", number, "X", "standard deviation; default: 1", true},
      {"mean", number, "X", "torch: mean; default: 0"},
      {"std", number, "X", "torch: standard deviation; default: 1"},
      {"minval", number, "X", "jax: smallest value; default of uniform: 0"},
      {"maxval", number, "X", "jax: end of the range, exclusive; default of uniform: 1"},
      {"key", word, "STEPS",
       "jax: steps that derive the key from the seed's key, such as 'split[1] fold_in(7)'"},
      {"n", number, "N", "permute or choose from the integers 0 to N-1"},
      {"p", numbers, "X,Y,...",
       "choice: probability of each element; bernoulli: probability of 1 (jax: default 0.5)"},
      {"values", tensor, "FILE",
       "tensor to permute, shuffle or choose from, or the probabilities of bernoulli (torch): FILE "
       "or FILE#NAME"},
      {"endpoint", off, "", "integers: include high in the range"},
      {"replace", on, "", "choice: draw without replacement"},
      {"shuffle", on, "",
       "choice of default_rng: do not shuffle what is drawn without replacement"},
      {"in_features", number, "N", "Linear: width of the input"},
      {"out_features", number, "N", "Linear: width of the output"},
      {"bias", on, "", "Linear, MultiheadAttention: no bias"},
      {"num_embeddings", number, "N", "Embedding: number of rows"},
      {"embedding_dim", number, "N", "Embedding: width of a row"},
      {"indices", sizes, "N,M,...", "Embedding: the rows to return; default: all"},
      {"embed_dim", number, "N", "MultiheadAttention: width of the queries"},
      {"kdim", number, "N", "MultiheadAttention: width of the keys; default: embed_dim"},
      {"vdim", number, "N", "MultiheadAttention: width of the values; default: embed_dim"},
      {"a", number, "X", "kaiming: slope of leaky_relu; default: 0; python: smallest value"},
      {"b", number, "X", "python: largest value"},
      {"mu", number, "X", "python: mean; default: 0"},
      {"sigma", number, "X", "python: standard deviation; default: 1"},
      {"start", number, "N", "randrange: smallest value; default: 0"},
      {"stop", number, "N", "randrange: end of the range, exclusive"},
      {"k", number, "N", "getrandbits: number of bits; sample: how many to draw"},
      {"weights", numbers, "X,Y,...", "choices: weight of each element; default: equal"},
      {"mode", word, "WORD", "kaiming: fan_in (default) or fan_out"},
      {"nonlinearity", word, "WORD", "kaiming: leaky_relu (default), relu, linear, tanh, ..."},
      {"gain", number, "X", "xavier: factor; default: 1"},
  };
  return table;
}

namespace {

constexpr std::size_t kMaxElements = std::size_t{1} << 32;  // 32 GiB of float64

}  // namespace

RandomArguments::RandomArguments(const Json& json, const std::vector<std::string>& known,
                                 const Tensor* values)
    : json_(json), values_(values) {
  const auto members = json.get<JsonObject>();
  if (members == nullptr) fail_data({.expected = "an object of arguments", .found = json.kind()});
  const auto is_known = [&](const std::string& key) {
    return std::find(known.begin(), known.end(), key) != known.end();
  };
  const auto check = [&](const std::string& key) {
    if (!is_known(key) && !(key == "size" && is_known("shape")))
      fail_data({.message = "unknown argument '" + printable(key) + "'" +
                            did_you_mean(key, known, NameKind::input),
                 .hint = "the arguments are " + join(known, ", ")});
  };
  for (const auto& [key, value] : *members) check(key);
  if (values_ != nullptr) check("values");
  if (find("shape") != nullptr && find("size") != nullptr)
    fail_data("'size' and 'shape' are the same argument");
}

bool RandomArguments::has(std::string_view key) const {
  return find(key) != nullptr || (key == "values" && values_ != nullptr);
}

int128 RandomArguments::integer(std::string_view key, std::optional<std::int64_t> fallback) const {
  if (fallback && !has(key)) return *fallback;
  const Json& value = need(key);
  if (const auto number = value.get<std::int64_t>()) return *number;
  if (const auto number = value.get<std::uint64_t>()) return *number;
  if (const auto text = value.get<std::string>()) {  // does not fit 64 bits: "18446744073709551616"
    const auto words = entropy_words(*text);
    if (words && words->size() <= 3) {
      int128 number = 0;
      for (std::size_t i = words->size(); i-- > 0;) number = number << 32 | (*words)[i];
      return number;
    }
  }
  wrong(key, "a whole number", value);
}

std::int64_t RandomArguments::count(std::string_view key) const {
  const int128 number = integer(key);
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max())
    fail_data(
        {.subject = std::string(key), .expected = "0 to 2147483647", .found = decimal(number)});
  if (need(key).get<std::string>() != nullptr) wrong(key, "a whole number", need(key));
  return static_cast<std::int64_t>(number);
}

double RandomArguments::number(std::string_view key, std::optional<double> fallback) const {
  double result = fallback.value_or(0);
  const Json* value = fallback ? find(key) : &need(key);
  if (value != nullptr && !value->as_number(result)) wrong(key, "a number", *value);
  return result;
}

bool RandomArguments::boolean(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto given = value->get<bool>()) return *given;
  wrong(key, "true or false", *value);
}

std::string RandomArguments::word(std::string_view key, std::string_view fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (const auto given = value->get<std::string>()) return *given;
  wrong(key, "a string", *value);
}

std::optional<std::vector<double>> RandomArguments::numbers(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (double one = 0; value->as_number(one)) return std::vector<double>{one};
  const Tensor tensor = cast(tensor_from_json(*value, std::string(key)), DType::f64);
  if (tensor.rank() != 1) wrong(key, "a list of numbers", *value);
  const auto data = tensor.data<double>();
  return std::vector<double>(data.begin(), data.end());
}

Shape RandomArguments::shape() const {
  const Shape shape = sizes(find("shape") != nullptr ? "shape" : "size");
  if (element_count(shape) > kMaxElements)
    fail_data({.subject = "shape", .expected = "at most 2^32 elements", .found = to_string(shape)});
  return shape;
}

Shape RandomArguments::sizes(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  const std::string_view name = key == "size" ? "shape" : key;
  Shape sizes;
  const auto add = [&](std::int64_t number) {
    if (number < 0)
      fail_data({.subject = std::string(name),
                 .expected = "whole numbers >= 0",
                 .found = std::to_string(number)});
    sizes.push_back(static_cast<std::size_t>(number));
  };
  const auto empty = value->get<JsonArray>();
  if (const auto one = value->get<std::int64_t>())
    add(*one);
  else if (const auto list = value->get<JsonIntegers>())
    std::for_each(list->begin(), list->end(), add);
  else if (empty == nullptr || !empty->empty())
    wrong(name, "a list of whole numbers", *value);
  return sizes;
}

DType RandomArguments::dtype(DType fallback) const {
  const Json* value = find("dtype");
  if (value == nullptr) return fallback;
  const auto name = value->get<std::string>();
  const auto dtype = name == nullptr ? std::nullopt : dtype_named(*name);
  if (!dtype)
    fail_data({.subject = "dtype",
               .expected = "a dtype such as \"int64\"",
               .found = name == nullptr ? value->kind() : "'" + printable(*name) + "'"});
  return *dtype;
}

Tensor RandomArguments::values() const {
  return values_ != nullptr ? *values_ : tensor_from_json(need("values"), "values");
}

DType RandomArguments::dtype_of_values(DType of_list) const {
  return values_ != nullptr ? values_->dtype() : of_list;
}

const Json* RandomArguments::find(std::string_view key) const { return json_.find(key); }

const Json& RandomArguments::need(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr)
    fail_data({.expected = "the argument '" + std::string(key) + "'", .found = "none"});
  return *value;
}

void RandomArguments::wrong(std::string_view key, const std::string& expected,
                            const Json& found) const {
  fail_data({.subject = std::string(key), .expected = expected, .found = found.kind()});
}

}  // namespace attn
