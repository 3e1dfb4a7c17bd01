#include "attn/job/draw.h"

#include <algorithm>
#include <limits>

#include "attn/job/draw_arguments.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

using Args = const DrawArguments&;

[[noreturn]] void fail(const std::string& text) { throw Error(ErrorKind::data, text); }

/// One method: which arguments it takes and how it draws.
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
  if (a.has("values") == a.has("n")) fail("permutation: expected either 'n' or 'values'");
  return a.has("values") ? state.permutation(a.values()) : state.permutation(a.count("n"));
}

Tensor draw_shuffle(RandomState& state, Args a) {
  Tensor values = a.values();
  state.shuffle(values);
  return values;
}

Tensor draw_choice(RandomState& state, Args a) {
  if (a.has("values") == a.has("n")) fail("choice: expected either 'n' or 'values'");
  const bool replace = a.boolean("replace", true);
  return a.has("values") ? state.choice(a.values(), a.shape(), replace, a.numbers("p"))
                         : state.choice(a.count("n"), a.shape(), replace, a.numbers("p"));
}

Tensor draw_random(Generator& generator, Args a) {
  const DType dtype = a.dtype(DType::f64);
  if (dtype != DType::f64 && dtype != DType::f32)
    fail("random: dtype: expected float64 or float32, found " + std::string(name_of(dtype)));
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
    try {
      return method.draw(source, DrawArguments(name, arguments, method.arguments, values));
    } catch (const Error& error) {
      const std::string text = error.what();
      throw Error(error.kind(), text.rfind(name + ":", 0) == 0 ? text : name + ": " + text);
    }
  }
  const std::vector<std::string> all = draw_methods();
  if (std::find(all.begin(), all.end(), name) != all.end())
    fail(name + ": a method of the other generator (RandomState or default_rng)");
  fail("unknown random method '" + printable(name) + "'" + did_you_mean(name, names_of(methods)));
}

/// A whole number as 32-bit words, least significant first; zero is one word.
std::vector<std::uint32_t> words_of(std::uint64_t value) {
  std::vector<std::uint32_t> words = {static_cast<std::uint32_t>(value)};
  if (value >> 32 != 0) words.push_back(static_cast<std::uint32_t>(value >> 32));
  return words;
}

/// The numbers of a seed, and whether they were a list.
std::vector<std::uint64_t> seed_numbers(const Json& seed, std::uint64_t most) {
  std::vector<std::uint64_t> numbers;
  const auto add = [&](std::int64_t value) {
    if (value < 0 || static_cast<std::uint64_t>(value) > most)
      fail("seed: expected 0 to " + std::to_string(most) + ", found " + std::to_string(value));
    numbers.push_back(static_cast<std::uint64_t>(value));
  };
  if (const auto* one = seed.get<std::int64_t>()) add(*one);
  if (const auto* list = seed.get<JsonIntegers>())
    for (const std::int64_t item : *list) add(item);
  if (numbers.empty()) fail("seed: expected a whole number or a list of them");
  return numbers;
}

}  // namespace

Stream make_stream(const Json& seed, const std::string& generator) {
  const bool legacy = generator == "RandomState";
  const std::vector<std::uint64_t> numbers =
      seed_numbers(seed, legacy ? std::numeric_limits<std::uint32_t>::max()
                                : std::numeric_limits<std::int64_t>::max());
  std::vector<std::uint32_t> words;
  for (const std::uint64_t number : numbers)
    for (const std::uint32_t word : words_of(number)) words.push_back(word);
  if (!legacy) return Generator(words);
  // np.random.seed(42) and np.random.seed([42]) are different streams.
  if (seed.get<std::int64_t>() != nullptr) return RandomState(words[0]);
  return RandomState(words);
}

Tensor draw(const Json& spec, Stream& stream, const Tensor* values) {
  const auto* members = spec.get<JsonObject>();
  if (members == nullptr || members->size() != 1)
    fail("expected an object with one random method, such as {\"randn\": {\"shape\": [2, 3]}}");
  const auto& [name, arguments] = members->front();
  if (auto* state = std::get_if<RandomState>(&stream))
    return draw_from(*state, legacy_methods(), name, arguments, values);
  return draw_from(std::get<Generator>(stream), generator_methods(), name, arguments, values);
}

std::vector<std::string> draw_methods() {
  std::vector<std::string> all = names_of(legacy_methods());
  for (const std::string& name : names_of(generator_methods()))
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  return all;
}

std::string draw_help() {
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
