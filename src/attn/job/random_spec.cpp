#include "attn/job/random_spec.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/job/field_value.h"

namespace attn {
namespace {

[[noreturn]] void fail_seed(const std::string& expected, const std::string& found) {
  fail_data({.subject = "seed", .expected = expected, .found = found});
}

const RandomMethod* find_method(std::string_view generator, const std::string& name) {
  for (const RandomMethod& method : methods_of(generator))
    if (method.name == name) return &method;
  return nullptr;
}

std::vector<std::string> method_names(std::string_view generator) {
  return texts_of(methods_of(generator), &RandomMethod::name);
}

/// The generator of a method that is written as in Python: torch of "torch.nn.init" and of methods
/// that end in '_'. Empty if it is not known.
std::string generator_of(std::string module, const std::string& method) {
  static const std::pair<const char*, std::vector<std::string>> kModules[] = {
      {"RandomState",
       {"np.random", "numpy.random", "RandomState", "np.random.RandomState",
        "numpy.random.RandomState"}},
      {"default_rng",
       {"default_rng", "np.random.default_rng", "numpy.random.default_rng", "Generator",
        "np.random.Generator", "numpy.random.Generator"}},
      {"torch", {"torch", "torch.nn", "torch.nn.init", "nn", "nn.init", "init", "torch.Tensor"}},
      {"jax", {"jax.random", "jrandom", "jr"}},
      {"python", {"random", "random.Random"}}};
  std::erase_if(module, [](char c) { return c == '(' || c == ')'; });
  for (const auto& [generator, modules] : kModules)
    if (std::find(modules.begin(), modules.end(), module) != modules.end()) return generator;
  return module.empty() && method.ends_with('_') ? "torch" : "";
}

/// "randn --generator torch" for "torch.randn" or, in a job, "randn" with "generator": "torch".
std::string suggested_method(std::string_view generator, const std::string& name, bool typed) {
  const std::size_t dot = name.rfind('.');
  std::string method = dot == std::string::npos ? name : name.substr(dot + 1);
  const std::string module = dot == std::string::npos ? "" : name.substr(0, dot);
  const std::string theirs = generator_of(module, method);
  if (method.ends_with("()")) method.resize(method.size() - 2);
  if (method.ends_with('_')) method.pop_back();
  if (theirs.empty() && module.empty())
    return did_you_mean(method, method_names(generator), NameKind::other);
  if (theirs.empty() || find_method(theirs, method) == nullptr) return "";
  const std::string other = theirs == generator ? "'"
                            : typed             ? " --generator " + theirs + "'"
                                                : "' with \"generator\": \"" + theirs + "\"";
  return " (did you mean '" + method + other + "?)";
}

[[noreturn]] void refuse_method(std::string_view generator, const std::string& name, bool typed) {
  const std::vector<std::string> known = method_names(generator);
  const std::vector<std::string> others = generators_with(name);
  if (others.empty()) {
    const std::string near = suggested_method(generator, name, typed);
    fail_data("unknown random method '" + printable(name) + "'" +
              (near.empty() ? "; the methods are " + join(known, ", ") : near));
  }
  fail_data(
      {.subject = name,
       .message = "not available for " + std::string(generator) + ", only for " + join_or(others),
       .hint = "the methods of " + std::string(generator) + " are " + join(known, ", ")});
}

/// Appends an integer of at most `most` 32-bit words, least significant first; zero is one word.
void append_words(const Json& number, std::size_t most, std::vector<std::uint32_t>& words) {
  const std::size_t before = words.size();
  if (const auto small = number.get<std::int64_t>(); small != nullptr && *small >= 0) {
    const auto high = static_cast<std::uint32_t>(*small >> 32);
    words.push_back(static_cast<std::uint32_t>(*small));
    if (high != 0) words.push_back(high);
  } else {
    std::string digits;
    if (small != nullptr) digits = std::to_string(*small);
    if (const auto real = number.get<double>(); real != nullptr && is_whole(*real))
      digits = std::to_string(static_cast<std::int64_t>(*real));
    if (const auto large = number.get<std::uint64_t>()) digits = std::to_string(*large);
    if (const auto text = number.get<std::string>()) digits = *text;
    const auto all = entropy_words(digits);
    if (!all)
      fail_seed("whole numbers >= 0 of at most " + std::to_string(kMaxSeedDigits) + " digits",
                digits.empty() ? number.kind() : "'" + printable(digits) + "'");
    words.insert(words.end(), all->begin(), all->end());
  }
  if (words.size() - before > most)
    fail_seed(most == 1 ? "0 to 4294967295" : "0 to 18446744073709551615", "a larger number");
}

/// The words of all numbers of a seed.
std::vector<std::uint32_t> seed_words(const Json& seed, std::size_t most) {
  std::vector<std::uint32_t> words;
  if (const auto row = seed.get<JsonIntegers>()) {
    for (const std::int64_t item : *row) append_words(Json{item}, most, words);
  } else if (const auto floats = seed.get<JsonFloats>()) {
    for (const double item : *floats) append_words(Json{item}, most, words);
  } else if (const auto list = seed.get<JsonArray>()) {
    for (const Json& item : *list) append_words(item, most, words);
  } else {
    append_words(seed, most, words);
  }
  if (words.empty()) fail_seed("at least one whole number", "none");
  return words;
}

}  // namespace

RandomStream make_stream(const Json& seed, const std::string& generator) {
  if (generator == "default_rng") return {"default_rng", Generator(seed_words(seed, ~0u))};
  if (generator == "RandomState") {
    const std::vector<std::uint32_t> words = seed_words(seed, 1);
    // np.random.seed(42) and np.random.seed([42]) are different streams.
    return {"RandomState", seed.is_array() ? RandomState(words) : RandomState(words[0])};
  }
  if (seed.is_array()) fail_seed("one whole number for " + generator, "a list");
  if (generator == "python") return {"python", PythonRandom(seed_words(seed, ~0u))};
  if (generator == "torch") return {"torch", TorchGenerator(seed_words(seed, 2)[0])};
  const bool partitionable = generator == "jax";
  return {partitionable ? "jax" : "jax-original", JaxRandom(seed_words(seed, 1)[0], partitionable)};
}

void require_method(std::string_view generator, const std::string& name) {
  if (find_method(generator, name) == nullptr) refuse_method(generator, name, true);
}

TensorMap draw(const Json& spec, RandomStream& stream, const Tensor* values) {
  const auto members = spec.get<JsonObject>();
  if (members == nullptr || members->size() != 1)
    fail_data(
        "expected an object with one random method, such as {\"randn\": {\"shape\": [2, 3]}}");
  const std::string& name = members->front().first;
  const Json& arguments = members->front().second;
  const RandomMethod* method = find_method(stream.generator, name);
  if (method == nullptr) refuse_method(stream.generator, name, false);
  return within(name, [&] {
    return method->draw(stream, RandomArguments(arguments, method->arguments, values));
  });
}

Tensor random_tensor(const Json& spec, RandomStream& stream) {
  const TensorMap drawn = draw(spec, stream);
  if (const Tensor* tensor = drawn.find("")) return *tensor;
  const std::string& name = spec.get<JsonObject>()->front().first;
  fail_data({.subject = name,
             .message = "draws several tensors",
             .hint = "write it in the list \"draws\""});
}

namespace {

/// The numbers in a value and in the lists that it contains.
double count_numbers(const Json& value) {
  if (const auto integers = value.get<JsonIntegers>()) return static_cast<double>(integers->size());
  if (const auto floats = value.get<JsonFloats>()) return static_cast<double>(floats->size());
  const auto list = value.get<JsonArray>();
  if (list == nullptr) return 1;
  double count = 0;
  for (const Json& item : *list) count += count_numbers(item);
  return count;
}

}  // namespace

std::size_t random_tensor_bytes(const Json& spec, const Tensor* values) {
  constexpr double kCopies = 3;  // the given values, those that are drawn from, and the result
  const auto members = spec.get<JsonObject>();
  if (members == nullptr || members->size() != 1) return 0;
  const Json& arguments = members->front().second;
  const auto number_in = [](const Json* value, double fallback) {
    double result = fallback;
    const bool is_number = value != nullptr && value->get<std::string>() == nullptr &&
                           value->as_number(result);  // "NaN" is a string
    return is_number ? std::clamp(result, 0.0, 0x1p63) : fallback;
  };
  const auto product = [&](const Json& value) {
    const auto list = value.get<JsonIntegers>();
    if (list == nullptr) return number_in(&value, 0);
    double result = 1;
    for (const std::int64_t extent : *list) result *= static_cast<double>(extent);
    return result;
  };
  const auto of_layer = [&] {
    const auto number = [&](const char* key, double fallback) {
      return number_in(arguments.find(key), fallback);
    };
    const double embed = number("embed_dim", 0), columns = number("embedding_dim", 0);
    const Json* indices = arguments.find("indices");
    const auto rows = indices == nullptr ? nullptr : indices->get<JsonIntegers>();
    return (number("in_features", 0) + 1) * number("out_features", 0) +
           embed * (2 * embed + number("kdim", embed) + number("vdim", embed) + 4) +
           columns * (number("num_embeddings", 0) + (rows ? static_cast<double>(rows->size()) : 0));
  };
  const std::string_view method = members->front().first;
  const bool is_layer =
      method == "Linear" || method == "Embedding" || method == "MultiheadAttention";
  const double layer = is_layer ? of_layer() : 0;
  double of_shape = 1, counts = 0,
         given = values == nullptr ? 0 : static_cast<double>(values->size());
  if (const auto object = arguments.get<JsonObject>())
    for (const auto& [name, value] : *object) {
      const std::string_view key = name;
      if (key == "shape" || key == "size")
        of_shape = std::max(of_shape, product(value));
      else if (key == "n" || key == "k")
        counts += number_in(&value, 0);
      else if (key == "values" && values == nullptr)
        given = count_numbers(value);
    }
  // The weights of a layer are transposed.
  const double elements = of_shape + counts + kCopies * given + 2 * layer;
  return static_cast<std::size_t>(std::min(sizeof(double) * elements, 0x1p63));
}

std::vector<std::string> generator_names() {
  std::vector<std::string> names;
  for (const GeneratorRow& row : kGenerators)
    if (row.refusal.empty()) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> generators_with(const std::string& method) {
  std::vector<std::string> names = generator_names();
  std::erase_if(names,
                [&](const std::string& name) { return find_method(name, method) == nullptr; });
  return names;
}

namespace {

/// Calls visit(method) for each method of each generator.
template <class Visit>
void for_each_method(const Visit& visit) {
  for (const std::string& generator : generator_names())
    for (const RandomMethod& method : methods_of(generator)) visit(method);
}

void add_once(std::vector<std::string>& list, const std::string& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

}  // namespace

std::vector<std::string> random_methods() {
  std::vector<std::string> all;
  for_each_method([&](const RandomMethod& method) { add_once(all, method.name); });
  return all;
}

bool draws_layer(const std::string& name) {
  bool is_layer = false;
  for_each_method([&](const RandomMethod& method) {
    is_layer = is_layer || (method.name == name && method.is_layer);
  });
  return is_layer;
}

std::vector<std::string> random_arguments(const std::string& name) {
  std::vector<std::string> all;
  for_each_method([&](const RandomMethod& method) {
    if (method.name != name) return;
    for (const std::string& argument : method.arguments) add_once(all, argument);
  });
  if (std::find(all.begin(), all.end(), "shape") != all.end()) all.emplace_back("size");
  return all;
}

std::string random_methods_help() {
  std::string text;
  for (const std::string& generator : generator_names()) {
    text += generator + ":\n";
    for (const RandomMethod& method : methods_of(generator))
      text += "  " + method.name + ": " + join(method.arguments, " ") + "\n";
  }
  return text;
}

}  // namespace attn
