// What numbers read from text become: the rule for JSON and CSV alike, and for flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "attn/base/dtype.h"

namespace attn {

/// A number as written. std::uint64_t holds only what std::int64_t cannot.
using Number = std::variant<std::int64_t, std::uint64_t, double>;

/// Looks at every number of a tensor to find the dtype that holds them all: int64 when all are
/// integers, uint64 when some of those need it, float64 as soon as one is not an integer and, as in
/// NumPy, when there are none.
class NumberCensus {
 public:
  void count(const Number& number);
  /// Errors: data, when there are integers below 0 and integers above 2^63 - 1.
  DType dtype(const std::string& name) const;

 private:
  bool any_ = false, float_ = false, negative_ = false, large_ = false;
};

template <class T>
T number_to(const Number& number) {
  return std::visit([](auto value) { return static_cast<T>(value); }, number);
}

/// A finite number as a shell has it: in decimal digits, also ".5" and "1.", as in C and Python.
std::optional<double> number_typed(std::string_view text);

/// "NaN", "Infinity" and "-Infinity", as which JSON documents hold what JSON numbers cannot.
bool non_finite_named(std::string_view word, double& number);
std::string_view non_finite_name(double number);

}  // namespace attn
