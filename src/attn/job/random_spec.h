// Random tensors as a job writes them: {"randint": {"low": 0, "high": 3, "shape": [3, 3]}}.
//
//   RandomState   randint {low = 0, high, shape, dtype}   rand, random, random_sample, randn,
//                 standard_normal {shape}   uniform {low = 0, high = 1, shape}
//                 normal {loc = 0, scale = 1, shape}   permutation {n | values}
//                 shuffle {values}   choice {n | values, shape, replace = true, p}
//   default_rng   random {shape, dtype}   integers {low = 0, high, shape, dtype, endpoint = false}
//                 uniform {low = 0, high = 1, shape}
//
// Names, defaults and numbers are NumPy's; NumPy's name for shape, size, is accepted, too. Without
// a shape the result is one number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attn/io/json_write.h"
#include "attn/random/generator.h"
#include "attn/random/random_state.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The stream from which all random tensors of a job are drawn.
using RandomStream = std::variant<RandomState, Generator>;

/// `seed` is an integer or a list of them, as a string of digits if 64 bits cannot hold it
/// (default_rng accepts any size); `generator` is "RandomState" or "default_rng".
/// Errors: data, for a negative number or one that NumPy refuses.
RandomStream make_stream(const Json& seed, const std::string& generator);

/// `spec` is an object with one member, the method; `values`, if any, is the argument of that name.
/// Errors: data, naming the method or argument and the most similar known one.
Tensor random_tensor(const Json& spec, RandomStream& stream, const Tensor* values = nullptr);

/// The size of the tensor and of the `n` integers that it is chosen from, as float64, in bytes, at
/// most 2^63. An invalid shape or count is not an error here: random_tensor() reports it.
std::uint64_t random_tensor_bytes(const Json& spec);

std::vector<std::string> random_methods();                             ///< of both generators
std::vector<std::string> random_arguments(const std::string& method);  ///< in either generator
std::string random_methods_help();  ///< every method and its arguments, a line each

/// Each reader throws Error(data), naming the argument, if its value is invalid.
class RandomArguments {
 public:
  /// `known` are the method's arguments; any other is an error that suggests the most similar one.
  /// `values`, if any, is the argument of that name.
  RandomArguments(const Json& json, const std::vector<std::string>& known, const Tensor* values);

  bool has(const std::string& key) const;
  int128 integer(const std::string& key, std::optional<std::int64_t> fallback = {}) const;
  std::int64_t count(const std::string& key) const;  ///< 0 to 2^31 - 1
  double number(const std::string& key, double fallback) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::optional<std::vector<double>> numbers(const std::string& key) const;
  Shape shape() const;  ///< () when absent: one number
  DType dtype(DType fallback) const;
  Tensor values() const;

 private:
  const Json* find(const std::string& key) const;  ///< nullptr when absent
  const Json& need(const std::string& key) const;
  [[noreturn]] void wrong(const std::string& key, const std::string& expected,
                          const Json& found) const;

  const Json& json_;
  const Tensor* values_;
};

}  // namespace attn
