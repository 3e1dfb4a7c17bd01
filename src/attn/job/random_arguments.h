// The arguments of a random tensor in a job document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/io/json.h"
#include "attn/random/int128.h"
#include "attn/tensor/tensor.h"

namespace attn {

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
