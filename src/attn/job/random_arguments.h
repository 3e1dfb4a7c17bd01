// The arguments of random methods: a table of all of them, and their values in a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/io/json_write.h"
#include "attn/random/generator.h"
#include "attn/tensor/tensor.h"

namespace attn {

enum class ArgumentKind {
  number,
  sizes,    ///< a list of whole numbers
  numbers,  ///< a number or a list of them
  word,
  tensor,
  off,  ///< a boolean whose default is false
  on,   ///< a boolean whose default is true
};

struct RandomArgument {
  std::string_view name;
  ArgumentKind kind;
  const char* placeholder;  ///< of a flag's value, in help
  const char* help;
  bool is_common = false;  ///< the flag is among those that -h lists
};

/// The arguments of all methods, by their names in NumPy, PyTorch, JAX or Python.
const std::vector<RandomArgument>& random_argument_table();

/// Each reader throws Error(data), naming the argument, if its value is invalid.
class RandomArguments {
 public:
  /// `known` are the method's arguments; any other is an error that suggests the most similar one.
  /// `values`, if any, is the argument of that name.
  RandomArguments(const Json& json, const std::vector<std::string>& known, const Tensor* values);

  bool has(std::string_view key) const;
  int128 integer(std::string_view key, std::optional<std::int64_t> fallback = {}) const;
  /// 0 to 2^31 - 1. A string is an error, also one of digits.
  std::int64_t count(std::string_view key) const;
  double number(std::string_view key, std::optional<double> fallback = {}) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string word(std::string_view key, std::string_view fallback) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  Shape shape() const;  ///< () when absent: one number
  Shape sizes(std::string_view key) const;
  DType dtype(DType fallback) const;
  Tensor values() const;
  /// The dtype of 'values' from a file, which a list does not have.
  DType dtype_of_values(DType of_list) const;

 private:
  const Json* find(std::string_view key) const;  ///< nullptr when absent
  const Json& need(std::string_view key) const;
  [[noreturn]] void wrong(std::string_view key, const std::string& expected,
                          const Json& found) const;

  const Json& json_;
  const Tensor* values_;
};

}  // namespace attn
