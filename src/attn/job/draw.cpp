#include "attn/job/draw.h"

#include <functional>
#include <limits>
#include <numeric>

#include "attn/tensor/error.h"

namespace attn {
namespace {

[[noreturn]] void fail(const std::string& text) { throw Error(ErrorKind::data, text); }

/// The arguments of one call, each read once; what is left unread is unknown.
class Arguments {
 public:
  Arguments(std::string method, const Json& json, std::vector<std::string> known)
      : method_(std::move(method)), json_(json), known_(std::move(known)) {
    const auto* members = json.get<JsonObject>();
    if (members == nullptr)
      fail(method_ + ": expected an object of arguments, found " + json.kind());
    for (const auto& [key, value] : *members) {
      bool is_known = false;
      for (const std::string& name : known_) is_known = is_known || name == key;
      if (!is_known)
        fail(method_ + ": unknown argument '" + printable(key) + "'" + did_you_mean(key, known_));
    }
  }

  bool has(const char* key) const { return json_.find(key) != nullptr; }

  int128 integer(const char* key, std::optional<std::int64_t> fallback = std::nullopt) const {
    const Json* value = find(key, fallback.has_value());
    if (value == nullptr) return *fallback;
    if (const auto* number = value->get<std::int64_t>()) return *number;
    if (const auto* number = value->get<std::uint64_t>()) return *number;
    wrong(key, "a whole number", *value);
  }

  double number(const char* key, double fallback) const {
    const Json* value = find(key, true);
    double result = fallback;
    if (value != nullptr && !value->as_number(result)) wrong(key, "a number", *value);
    return result;
  }

  bool boolean(const char* key, bool fallback) const {
    const Json* value = find(key, true);
    if (value == nullptr) return fallback;
    if (const bool* given = value->get<bool>()) return *given;
    wrong(key, "true or false", *value);
  }

  Shape shape() const {
    const Json* value = find("shape", false);
    std::vector<std::int64_t> extents;
    if (const auto* one = value->get<std::int64_t>())
      extents = {*one};
    else if (const auto* list = value->get<JsonIntegers>())
      extents = *list;
    else if (const auto* empty = value->get<JsonArray>(); empty == nullptr || !empty->empty())
      wrong("shape", "a list of whole numbers", *value);
    Shape shape;
    for (const std::int64_t extent : extents) {
      if (extent < 0)
        fail(method_ + ": shape: expected no negative number, found " + std::to_string(extent));
      shape.push_back(static_cast<std::size_t>(extent));
    }
    constexpr std::size_t kMost = std::size_t{1} << 32;  // elements: 32 GiB of float64
    if (element_count(shape) > kMost)
      fail(method_ + ": shape: " + to_string(shape) + " is more than 2^32 elements");
    return shape;
  }

  DType dtype(DType fallback) const {
    const Json* value = find("dtype", true);
    if (value == nullptr) return fallback;
    const auto* name = value->get<std::string>();
    const auto known = name == nullptr ? std::nullopt : dtype_named(*name);
    if (!known) wrong("dtype", "a dtype such as \"int64\"", *value);
    return *known;
  }

  std::vector<double> numbers(const char* key) const {
    const Json* value = find(key, true);
    if (value == nullptr) return {};
    const Tensor tensor = cast(tensor_from_json(*value, method_ + ": " + key), DType::f64);
    const auto data = tensor.data<double>();
    return {data.begin(), data.end()};
  }

  Tensor tensor(const char* key) const {
    return tensor_from_json(*find(key, false), method_ + ": " + key);
  }

 private:
  const Json* find(const char* key, bool optional) const {
    const Json* value = json_.find(key);
    if (value == nullptr && !optional) fail(method_ + ": expected the argument '" + key + "'");
    return value;
  }
  [[noreturn]] void wrong(const char* key, const char* expected, const Json& value) const {
    fail(method_ + ": " + key + ": expected " + expected + ", found " + value.kind());
  }

  std::string method_;
  const Json& json_;
  std::vector<std::string> known_;
};

/// One method: which arguments it takes and how it draws.
template <class Source>
struct Method {
  std::string name;
  std::vector<std::string> arguments;
  std::function<Tensor(Source&, const Arguments&)> draw;
};

Tensor draw_choice(RandomState& state, const Arguments& a) {
  Tensor population;
  if (a.has("values") == a.has("n")) fail("choice: expected either 'n' or 'values'");
  if (a.has("values")) {
    population = a.tensor("values");
  } else {
    const int128 n = a.integer("n");
    if (n < 0 || n > std::numeric_limits<std::int32_t>::max())
      fail("choice: n: expected 0 to 2147483647");
    std::vector<std::int64_t> range(static_cast<std::size_t>(n));
    std::iota(range.begin(), range.end(), std::int64_t{0});
    population = Tensor::of<std::int64_t>({range.size()}, range);
  }
  return state.choice(population, a.shape(), a.boolean("replace", true), a.numbers("p"));
}

Tensor draw_permutation(RandomState& state, const Arguments& a) {
  const int128 n = a.integer("n");
  if (n < 0 || n > std::numeric_limits<std::int32_t>::max())
    fail("permutation: n: expected 0 to 2147483647");
  return state.permutation(static_cast<std::int64_t>(n));
}

const std::vector<Method<RandomState>>& legacy_methods() {
  using Args = const Arguments&;
  static const auto random = [](RandomState& s, Args a) { return s.random_sample(a.shape()); };
  static const auto normal = [](RandomState& s, Args a) { return s.standard_normal(a.shape()); };
  static const std::vector<Method<RandomState>> methods = {
      {"randint",
       {"low", "high", "shape", "dtype"},
       [](RandomState& s, Args a) {
         return s.randint(a.integer("low", 0), a.integer("high"), a.dtype(DType::i64), a.shape());
       }},
      {"rand", {"shape"}, random},
      {"random_sample", {"shape"}, random},
      {"randn", {"shape"}, normal},
      {"standard_normal", {"shape"}, normal},
      {"uniform",
       {"low", "high", "shape"},
       [](RandomState& s, Args a) {
         return s.uniform(a.number("low", 0), a.number("high", 1), a.shape());
       }},
      {"normal",
       {"loc", "scale", "shape"},
       [](RandomState& s, Args a) {
         return s.normal(a.number("loc", 0), a.number("scale", 1), a.shape());
       }},
      {"permutation", {"n"}, draw_permutation},
      {"choice", {"n", "values", "shape", "replace", "p"}, draw_choice},
  };
  return methods;
}

const std::vector<Method<Generator>>& generator_methods() {
  using Args = const Arguments&;
  static const std::vector<Method<Generator>> methods = {
      {"random",
       {"shape", "dtype"},
       [](Generator& g, Args a) {
         const DType dtype = a.dtype(DType::f64);
         if (dtype != DType::f64 && dtype != DType::f32)
           fail("random: dtype: expected float64 or float32, found " + std::string(name_of(dtype)));
         return dtype == DType::f32 ? g.random_f32(a.shape()) : g.random(a.shape());
       }},
      {"integers",
       {"low", "high", "shape", "dtype", "endpoint"},
       [](Generator& g, Args a) {
         const int128 high = a.integer("high") + (a.boolean("endpoint", false) ? 1 : 0);
         return g.integers(a.integer("low", 0), high, a.dtype(DType::i64), a.shape());
       }},
      {"uniform",
       {"low", "high", "shape"},
       [](Generator& g, Args a) {
         return g.uniform(a.number("low", 0), a.number("high", 1), a.shape());
       }},
  };
  return methods;
}

template <class Source>
Tensor draw_from(Source& source, const std::vector<Method<Source>>& methods,
                 const std::string& name, const Json& arguments) {
  std::vector<std::string> known;
  for (const auto& method : methods) {
    if (method.name == name)
      return method.draw(source, Arguments(name, arguments, method.arguments));
    known.push_back(method.name);
  }
  const bool elsewhere =
      std::find(draw_methods().begin(), draw_methods().end(), name) != draw_methods().end();
  if (elsewhere)
    fail("'" + name +
         "' is a method of the other generator (key \"generator\": RandomState or "
         "default_rng)");
  fail("unknown random method '" + printable(name) + "'" + did_you_mean(name, known));
}

/// A whole number as 32-bit words, least significant first; zero is one word.
std::vector<std::uint32_t> words_of(std::uint64_t value) {
  std::vector<std::uint32_t> words = {static_cast<std::uint32_t>(value)};
  if (value >> 32 != 0) words.push_back(static_cast<std::uint32_t>(value >> 32));
  return words;
}

std::uint64_t seed_number(std::int64_t value, std::uint64_t most) {
  if (value < 0 || static_cast<std::uint64_t>(value) > most)
    fail("seed: expected 0 to " + std::to_string(most) + ", found " + std::to_string(value));
  return static_cast<std::uint64_t>(value);
}

}  // namespace

Stream make_stream(const Json& seed, const std::string& generator) {
  const bool legacy = generator == "RandomState";
  const std::uint64_t most =
      legacy ? std::numeric_limits<std::uint32_t>::max() : std::numeric_limits<std::int64_t>::max();
  if (const auto* one = seed.get<std::int64_t>()) {
    const std::uint64_t number = seed_number(*one, most);
    if (legacy) return RandomState(static_cast<std::uint32_t>(number));
    return Generator(number);
  }
  const auto* list = seed.get<JsonIntegers>();
  if (list == nullptr || list->empty()) fail("seed: expected a whole number or a list of them");
  std::vector<std::uint32_t> key;
  for (const std::int64_t item : *list)
    for (const std::uint32_t word : words_of(seed_number(item, most))) key.push_back(word);
  if (legacy) return RandomState(key);
  return Generator(key);
}

Tensor draw(const Json& spec, Stream& stream) {
  const auto* members = spec.get<JsonObject>();
  if (members == nullptr || members->size() != 1)
    fail("expected an object with one random method, such as {\"randn\": {\"shape\": [2, 3]}}");
  const auto& [name, arguments] = members->front();
  if (auto* state = std::get_if<RandomState>(&stream))
    return draw_from(*state, legacy_methods(), name, arguments);
  return draw_from(std::get<Generator>(stream), generator_methods(), name, arguments);
}

const std::vector<std::string>& draw_methods() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& method : legacy_methods()) all.push_back(method.name);
    for (const auto& method : generator_methods())
      if (std::find(all.begin(), all.end(), method.name) == all.end()) all.push_back(method.name);
    return all;
  }();
  return names;
}

}  // namespace attn
