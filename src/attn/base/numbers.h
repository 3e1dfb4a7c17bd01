// Numbers read from text: the dtype rules of JSON and CSV, and numbers in flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "attn/base/dtype.h"

namespace attn {

/// std::uint64_t is used only for integers that do not fit std::int64_t.
using Number = std::variant<std::int64_t, std::uint64_t, double>;

/// Finds the dtype for all numbers of a tensor: int64 if all are integers, uint64 if some of these
/// need it, float64 otherwise and, as in NumPy, if there are none.
class NumberCensus {
 public:
  void count(const Number& number);
  /// Errors: data, if there are integers below 0 and integers above 2^63 - 1.
  DType dtype(const std::string& name) const;

 private:
  bool any_ = false, float_ = false, negative_ = false, large_ = false;
};

template <class T>
T number_to(const Number& number) {
  return std::visit([](auto value) { return static_cast<T>(value); }, number);
}

/// A finite decimal number from the command line; also ".5" and "1.", as in C and Python.
std::optional<double> number_typed(std::string_view text);

/// "NaN", "Infinity" and "-Infinity", which JSON documents contain as strings.
bool non_finite_named(std::string_view word, double& number);
std::string_view non_finite_name(double number);

}  // namespace attn
