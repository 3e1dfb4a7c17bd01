#include "attn/job/random_spec.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/job/random_arguments.h"

namespace attn {
namespace {

using Args = const RandomArguments&;

[[noreturn]] void fail(const std::string& text) { throw Error(ErrorKind::data, text); }

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
  const std::vector<std::string> all = random_methods();
  if (std::find(all.begin(), all.end(), name) != all.end())
    fail(name + ": expected a method of " + generator_name(source) + ", found one of " +
         other_generator_name(source));
  std::string known;
  for (const std::string& method : names_of(methods)) known += (known.empty() ? "" : ", ") + method;
  fail("unknown random method '" + printable(name) + "'" + did_you_mean(name, names_of(methods)) +
       "; there are " + known);
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
    fail_seed("whole numbers >= 0 of at most " + std::to_string(kMostSeedDigits) + " digits",
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
  double bytes = sizeof(double);
  for (const char* const key : {"shape", "size", "n"}) {
    const Json* const value = arguments.find(key);
    if (value == nullptr) continue;
    if (const auto* one = value->get<std::int64_t>()) bytes *= static_cast<double>(*one);
    if (const auto* list = value->get<JsonIntegers>())
      for (const std::int64_t extent : *list) bytes *= static_cast<double>(extent);
  }
  return bytes > 0 ? static_cast<std::uint64_t>(std::min(bytes, 0x1p63)) : 0;
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

}  // namespace attn
