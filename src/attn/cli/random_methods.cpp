#include "attn/cli/random_methods.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "attn/random/generator.h"
#include "attn/random/random_state.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& text) {
  throw Error(ErrorKind::usage, what + ": " + text);
}

/// Parts between commas; one comma at the end is passed over, as in Python's "(3,)".
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

template <class T>
T number(const std::string& flag, const std::string& text, const std::string& expected) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end)
    refuse(flag, "expected " + expected + ", found '" + printable(text) + "'");
  return value;
}

template <class T>
std::vector<T> numbers(const std::string& flag, const std::string& text,
                       const std::string& expected) {
  std::vector<T> values;
  for (const std::string& part : split(text)) values.push_back(number<T>(flag, part, expected));
  return values;
}

double real(const std::string& flag, const std::string& text) {
  return number<double>(flag, text, "a number");
}

/// An integer of up to 96 bits: more than any bound has.
int128 integer(const std::string& flag, const std::string& text) {
  const bool negative = text.starts_with('-');
  const auto words = entropy_words(std::string_view(text).substr(negative ? 1 : 0));
  if (!words || words->size() > 3)
    refuse(flag, "expected an integer, found '" + printable(text) + "'");
  int128 value = 0;
  for (std::size_t i = words->size(); i-- > 0;) value = value << 32 | (*words)[i];
  return negative ? -value : value;
}

/// The options' values as the methods take them, each understood when a method asks for it.
struct Arguments {
  const DrawOptions& options;
  Tensor input;

  bool has_input() const { return !options.input.empty(); }
  Shape shape() const {
    return numbers<std::size_t>("--shape", options.shape, "sizes such as 3,3");
  }
  DType dtype(DType otherwise) const {
    if (options.dtype.empty()) return otherwise;
    const auto named = dtype_named(options.dtype);
    if (!named)
      refuse("--dtype", "expected a type such as int64, found '" + printable(options.dtype) + "'");
    return *named;
  }
  int128 low() const { return options.low.empty() ? 0 : integer("--low", options.low); }
  int128 high() const {
    if (options.high.empty()) refuse(options.method, "--high is missing");
    return integer("--high", options.high);
  }
  double real_low() const { return options.low.empty() ? 0 : real("--low", options.low); }
  double real_high() const { return options.high.empty() ? 1 : real("--high", options.high); }
  std::int64_t n() const { return number<std::int64_t>("--n", options.n, "an integer"); }
  std::vector<double> p() const { return numbers<double>("--p", options.p, "numbers"); }
};

template <class Stream>
struct Method {
  std::string name;
  std::vector<std::string> takes;
  Tensor (*draw)(Stream& stream, Arguments& arguments);
};

Tensor draw_sample(RandomState& stream, Arguments& a) { return stream.random_sample(a.shape()); }

Tensor draw_standard(RandomState& stream, Arguments& a) {
  return stream.standard_normal(a.shape());
}

Tensor draw_normal(RandomState& stream, Arguments& a) {
  return stream.normal(real("--loc", a.options.loc), real("--scale", a.options.scale), a.shape());
}

template <class Stream>
Tensor draw_uniform(Stream& stream, Arguments& a) {
  return stream.uniform(a.real_low(), a.real_high(), a.shape());
}

Tensor draw_randint(RandomState& stream, Arguments& a) {
  return stream.randint(a.low(), a.high(), a.dtype(DType::i64), a.shape());
}

Tensor draw_permutation(RandomState& stream, Arguments& a) {
  return a.has_input() ? stream.permutation(a.input) : stream.permutation(a.n());
}

Tensor draw_shuffle(RandomState& stream, Arguments& a) {
  stream.shuffle(a.input);  // in place: with --repeat, each result is shuffled further
  return a.input;
}

Tensor draw_choice(RandomState& stream, Arguments& a) {
  return a.has_input() ? stream.choice(a.input, a.shape(), a.options.replace, a.p())
                       : stream.choice(a.n(), a.shape(), a.options.replace, a.p());
}

Tensor draw_random(Generator& stream, Arguments& a) {
  const DType dtype = a.dtype(DType::f64);
  if (dtype == DType::f32) return stream.random_f32(a.shape());
  if (dtype != DType::f64)
    refuse("--dtype", "expected float64 or float32, found " + std::string(name_of(dtype)));
  return stream.random(a.shape());
}

Tensor draw_integers(Generator& stream, Arguments& a) {
  return stream.integers(a.low(), a.high(), a.dtype(DType::i64), a.shape());
}

const std::vector<Method<RandomState>>& random_state_methods() {
  static const std::vector<Method<RandomState>> methods = {
      {"randint", {"--low", "--high", "--dtype", "--shape"}, draw_randint},
      {"rand", {"--shape"}, draw_sample},
      {"random", {"--shape"}, draw_sample},
      {"random_sample", {"--shape"}, draw_sample},
      {"uniform", {"--low", "--high", "--shape"}, draw_uniform},
      {"randn", {"--shape"}, draw_standard},
      {"standard_normal", {"--shape"}, draw_standard},
      {"normal", {"--loc", "--scale", "--shape"}, draw_normal},
      {"permutation", {"--n", "--input"}, draw_permutation},
      {"shuffle", {"--input"}, draw_shuffle},
      {"choice", {"--n", "--input", "--replace", "--p", "--shape"}, draw_choice}};
  return methods;
}

const std::vector<Method<Generator>>& generator_methods() {
  static const std::vector<Method<Generator>> methods = {
      {"random", {"--dtype", "--shape"}, draw_random},
      {"integers", {"--low", "--high", "--dtype", "--shape"}, draw_integers},
      {"uniform", {"--low", "--high", "--shape"}, draw_uniform}};
  return methods;
}

template <class Stream>
const Method<Stream>& find_method(const std::vector<Method<Stream>>& methods,
                                  const DrawOptions& options) {
  std::vector<std::string> names;
  for (const Method<Stream>& method : methods) {
    if (method.name == options.method) return method;
    names.push_back(method.name);
  }
  if (options.method == "integers") refuse("integers", "needs --generator default_rng");
  refuse(options.generator, "has no method '" + printable(options.method) + "' here" +
                                did_you_mean(options.method, names));
}

template <class Stream>
void check_options(const Method<Stream>& method, const DrawOptions& options) {
  const auto takes = [&](const std::string& option) {
    return std::find(method.takes.begin(), method.takes.end(), option) != method.takes.end();
  };
  for (const std::string& option : options.typed)
    if (!takes(option)) refuse(method.name, "does not take " + option);
  if (takes("--input") && options.n.empty() == options.input.empty())
    refuse(method.name, takes("--n") ? "expected either --n or --input" : "--input is missing");
}

RandomState random_state(const std::string& seed) {
  const auto key = numbers<std::uint32_t>("--seed", seed, "integers from 0 to 4294967295");
  if (key.empty()) refuse("--seed", "expected at least one integer, found none");
  // A comma makes a sequence of one number, too, as in Python: seed([42]) is not seed(42).
  return seed.find(',') == std::string::npos ? RandomState(key[0]) : RandomState(key);
}

Generator generator(const std::string& seed) {
  std::vector<std::uint32_t> entropy;
  for (const std::string& part : split(seed)) {
    const auto words = entropy_words(part);
    if (!words)
      refuse("--seed", "expected integers of at least 0, found '" + printable(part) + "'");
    entropy.insert(entropy.end(), words->begin(), words->end());
  }
  if (entropy.empty()) refuse("--seed", "expected at least one integer, found none");
  return Generator(entropy);
}

template <class Stream>
TensorMap draw_from(Stream stream, const std::vector<Method<Stream>>& methods,
                    const DrawOptions& options, const Tensor& input) {
  const Method<Stream>& method = find_method(methods, options);
  check_options(method, options);
  Arguments arguments{options, input};
  TensorMap arrays;
  try {
    for (std::size_t i = 0; i < options.repeat; ++i)
      arrays.set("arr_" + std::to_string(i), method.draw(stream, arguments));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    // What a draw refuses was typed, unless it came from a file.
    throw Error(arguments.has_input() ? ErrorKind::data : ErrorKind::usage,
                method.name + ": " + error.what());
  }
  return arrays;
}

template <class Stream>
std::string list(const std::vector<Method<Stream>>& methods) {
  std::string text;
  for (const Method<Stream>& method : methods) {
    text += "  " + method.name;
    for (const std::string& option : method.takes) text += " " + option;
    text += '\n';
  }
  return text;
}

}  // namespace

TensorMap draw(const DrawOptions& options, const Tensor& input) {
  if (options.generator == "default_rng")
    return draw_from(generator(options.seed), generator_methods(), options, input);
  return draw_from(random_state(options.seed), random_state_methods(), options, input);
}

std::string list_methods() {
  return "RandomState's methods, and what they take:\n" + list(random_state_methods()) +
         "default_rng's:\n" + list(generator_methods());
}

}  // namespace attn
