#include "attn/job/random_spec.h"

#include <algorithm>
#include <limits>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/io/json_tensor.h"
#include "attn/random/generator.h"

namespace attn {
namespace {

using Args = const RandomArguments&;

[[noreturn]] void fail(Problem problem) { throw Error(ErrorKind::data, std::move(problem)); }
[[noreturn]] void fail(std::string message) { fail(Problem{.message = std::move(message)}); }

[[noreturn]] void fail_seed(const std::string& expected, const std::string& found) {
  throw Error(ErrorKind::data, Problem{.subject = "seed", .expected = expected, .found = found});
}

/// A method, its arguments, and the function that draws.
template <class Source>
struct Method {
  std::string name;
  std::vector<std::string> arguments;
  Tensor (*draw)(Source&, Args);
};

Tensor draw_sample(RandomState& state, Args a) { return state.random_sample(a.shape()); }

Tensor draw_standard(RandomState& state, Args a) { return state.standard_normal(a.shape()); }

Tensor draw_normal(RandomState& state, Args a) {
  return state.normal(a.number("loc", 0), a.number("scale", 1), a.shape());
}

template <class Source>
Tensor draw_uniform(Source& source, Args a) {
  return source.uniform(a.number("low", 0), a.number("high", 1), a.shape());
}

Tensor draw_randint(RandomState& state, Args a) {
  return state.randint(a.integer("low", 0), a.integer("high"), a.dtype(DType::i64), a.shape());
}

Tensor draw_permutation(RandomState& state, Args a) {
  if (a.has("values") == a.has("n")) fail("expected either 'n' or 'values'");
  return a.has("values") ? state.permutation(a.values()) : state.permutation(a.count("n"));
}

Tensor draw_shuffle(RandomState& state, Args a) {
  Tensor values = a.values();
  state.shuffle(values);
  return values;
}

Tensor draw_choice(RandomState& state, Args a) {
  if (a.has("values") == a.has("n")) fail("expected either 'n' or 'values'");
  const bool replace = a.boolean("replace", true);
  return a.has("values") ? state.choice(a.values(), a.shape(), replace, a.numbers("p"))
                         : state.choice(a.count("n"), a.shape(), replace, a.numbers("p"));
}

Tensor draw_random(Generator& generator, Args a) {
  const DType dtype = a.dtype(DType::f64);
  if (dtype != DType::f64 && dtype != DType::f32)
    throw Error(ErrorKind::data, Problem{.subject = "dtype",
                                         .expected = "float64 or float32",
                                         .found = std::string(name_of(dtype))});
  return dtype == DType::f32 ? generator.random_f32(a.shape()) : generator.random(a.shape());
}

Tensor draw_integers(Generator& generator, Args a) {
  const int128 high = a.integer("high") + (a.boolean("endpoint", false) ? 1 : 0);
  return generator.integers(a.integer("low", 0), high, a.dtype(DType::i64), a.shape());
}

const std::vector<Method<RandomState>>& legacy_methods() {
  static const std::vector<Method<RandomState>> methods = {
      {"randint", {"low", "high", "shape", "dtype"}, draw_randint},
      {"rand", {"shape"}, draw_sample},
      {"random", {"shape"}, draw_sample},
      {"random_sample", {"shape"}, draw_sample},
      {"randn", {"shape"}, draw_standard},
      {"standard_normal", {"shape"}, draw_standard},
      {"uniform", {"low", "high", "shape"}, draw_uniform},
      {"normal", {"loc", "scale", "shape"}, draw_normal},
      {"permutation", {"n", "values"}, draw_permutation},
      {"shuffle", {"values"}, draw_shuffle},
      {"choice", {"n", "values", "shape", "replace", "p"}, draw_choice},
  };
  return methods;
}

const std::vector<Method<Generator>>& generator_methods() {
  static const std::vector<Method<Generator>> methods = {
      {"random", {"shape", "dtype"}, draw_random},
      {"integers", {"low", "high", "shape", "dtype", "endpoint"}, draw_integers},
      {"uniform", {"low", "high", "shape"}, draw_uniform},
  };
  return methods;
}

const char* generator_name(const RandomState&) { return "RandomState"; }
const char* generator_name(const Generator&) { return "default_rng"; }
const char* other_generator_name(const RandomState&) { return "default_rng"; }
const char* other_generator_name(const Generator&) { return "RandomState"; }

template <class Source>
std::vector<std::string> names_of(const std::vector<Method<Source>>& methods) {
  std::vector<std::string> names;
  for (const auto& method : methods) names.push_back(method.name);
  return names;
}

template <class Source>
Tensor draw_from(Source& source, const std::vector<Method<Source>>& methods,
                 const std::string& name, const Json& arguments, const Tensor* values) {
  for (const auto& method : methods) {
    if (method.name != name) continue;
    return within(name, [&] {
      return method.draw(source, RandomArguments(arguments, method.arguments, values));
    });
  }
  const std::string known = join(names_of(methods), ", ");
  const std::vector<std::string> all = random_methods();
  if (std::find(all.begin(), all.end(), name) != all.end())
    fail(
        Problem{.subject = name,
                .message = std::string("not available for ") + generator_name(source) +
                           ", only for " + other_generator_name(source),
                .hint = std::string("the methods of ") + generator_name(source) + " are " + known});
  fail("unknown random method '" + printable(name) + "'" + did_you_mean(name, names_of(methods)) +
       "; the methods are " + known);
}

/// An integer of any size as 32-bit words, least significant first; zero is one word.
std::vector<std::uint32_t> seed_words(const Json& number) {
  std::string digits;
  if (const auto* small = number.get<std::int64_t>()) digits = std::to_string(*small);
  if (const auto* real = number.get<double>())
    digits = std::to_string(static_cast<std::int64_t>(*real));  // whole: the field was checked
  if (const auto* large = number.get<std::uint64_t>()) digits = std::to_string(*large);
  if (const auto* text = number.get<std::string>()) digits = *text;
  const auto words = entropy_words(digits);
  if (!words)
    fail_seed("whole numbers >= 0 of at most " + std::to_string(kMaxSeedDigits) + " digits",
              digits.empty() ? number.kind() : "'" + printable(digits) + "'");
  return *words;
}

/// The numbers of a seed, each as words.
std::vector<std::vector<std::uint32_t>> seed_numbers(const Json& seed) {
  std::vector<std::vector<std::uint32_t>> numbers;
  if (const auto* row = seed.get<JsonIntegers>()) {
    for (const std::int64_t item : *row) numbers.push_back(seed_words(Json{item}));
  } else if (const auto* floats = seed.get<JsonFloats>()) {
    for (const double item : *floats) numbers.push_back(seed_words(Json{item}));
  } else if (const auto* list = seed.get<JsonArray>()) {
    for (const Json& item : *list) numbers.push_back(seed_words(item));
  } else {
    numbers.push_back(seed_words(seed));
  }
  if (numbers.empty()) fail_seed("at least one whole number", "none");
  return numbers;
}

}  // namespace

RandomStream make_stream(const Json& seed, const std::string& generator) {
  const bool legacy = generator == "RandomState";
  std::vector<std::uint32_t> words;
  for (const std::vector<std::uint32_t>& number : seed_numbers(seed)) {
    if (legacy && number.size() > 1) fail_seed("0 to 4294967295", "a larger number");
    words.insert(words.end(), number.begin(), number.end());
  }
  if (!legacy) return Generator(words);
  // np.random.seed(42) and np.random.seed([42]) are different streams.
  return seed.is_array() ? RandomState(words) : RandomState(words[0]);
}

Tensor random_tensor(const Json& spec, RandomStream& stream, const Tensor* values) {
  const auto* members = spec.get<JsonObject>();
  if (members == nullptr || members->size() != 1)
    fail("expected an object with one random method, such as {\"randn\": {\"shape\": [2, 3]}}");
  const auto& [name, arguments] = members->front();
  if (auto* state = std::get_if<RandomState>(&stream))
    return draw_from(*state, legacy_methods(), name, arguments, values);
  return draw_from(std::get<Generator>(stream), generator_methods(), name, arguments, values);
}

std::uint64_t random_tensor_bytes(const Json& spec) {
  const auto* members = spec.get<JsonObject>();
  if (members == nullptr || members->size() != 1) return 0;
  const Json& arguments = members->front().second;
  double elements = 1, population = 0;
  if (const auto* object = arguments.get<JsonObject>()) {
    for (const auto& [key, value] : *object) {
      if (key != "shape" && key != "size" && key != "n") continue;
      double count = 1;
      if (const auto* one = value.get<std::int64_t>()) count = static_cast<double>(*one);
      if (const auto* list = value.get<JsonIntegers>())
        for (const std::int64_t extent : *list) count *= static_cast<double>(extent);
      (key == "n" ? population : elements) = count;
    }
  }
  const double bytes = sizeof(double) * (std::max(elements, 0.0) + std::max(population, 0.0));
  return static_cast<std::uint64_t>(std::min(bytes, 0x1p63));
}

std::vector<std::string> random_methods() {
  std::vector<std::string> all = names_of(legacy_methods());
  for (const std::string& name : names_of(generator_methods()))
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  return all;
}

std::vector<std::string> random_arguments(const std::string& method) {
  std::vector<std::string> all;
  const auto add = [&](const auto& methods) {
    for (const auto& known : methods)
      for (const std::string& argument : known.arguments)
        if (known.name == method && std::find(all.begin(), all.end(), argument) == all.end())
          all.push_back(argument);
  };
  add(legacy_methods());
  add(generator_methods());
  if (std::find(all.begin(), all.end(), "shape") != all.end()) all.emplace_back("size");
  return all;
}

std::string random_methods_help() {
  std::string text;
  const auto add = [&](const auto& methods) {
    for (const auto& method : methods) {
      text += "  " + method.name + ":";
      for (const std::string& argument : method.arguments) text += " " + argument;
      text += "\n";
    }
  };
  text += "RandomState:\n";
  add(legacy_methods());
  text += "default_rng:\n";
  add(generator_methods());
  return text;
}

namespace {

constexpr std::size_t kMaxElements = std::size_t{1} << 32;  // 32 GiB of float64

}  // namespace

RandomArguments::RandomArguments(const Json& json, const std::vector<std::string>& known,
                                 const Tensor* values)
    : json_(json), values_(values) {
  const auto* members = json.get<JsonObject>();
  if (members == nullptr) fail(Problem{.expected = "an object of arguments", .found = json.kind()});
  const auto is_known = [&](const std::string& key) {
    return std::find(known.begin(), known.end(), key) != known.end();
  };
  const auto check = [&](const std::string& key) {
    if (!is_known(key) && !(key == "size" && is_known("shape")))
      fail(Problem{.message =
                       "unknown argument '" + printable(key) + "'" + did_you_mean(key, known)});
  };
  for (const auto& [key, value] : *members) check(key);
  if (values_ != nullptr) check("values");
  if (find("shape") != nullptr && find("size") != nullptr)
    fail(Problem{.message = "'size' and 'shape' are the same argument"});
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
      fail(Problem{.subject = "shape", .expected = "sizes >= 0", .found = std::to_string(extent)});
    shape.push_back(static_cast<std::size_t>(extent));
  }
  if (element_count(shape) > kMaxElements)
    fail(Problem{
        .subject = "shape", .expected = "at most 2^32 elements", .found = to_string(shape)});
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
  if (value == nullptr) fail(Problem{.expected = "the argument '" + key + "'", .found = "none"});
  return *value;
}

void RandomArguments::wrong(const std::string& key, const std::string& expected,
                            const Json& found) const {
  fail(Problem{.subject = key, .expected = expected, .found = found.kind()});
}

}  // namespace attn
