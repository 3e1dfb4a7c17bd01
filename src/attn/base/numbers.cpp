#include "attn/base/numbers.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "attn/base/error.h"

namespace attn {

void NumberCensus::count(const Number& number) {
  any_ = true;
  if (const auto* integer = std::get_if<std::int64_t>(&number))
    negative_ |= *integer < 0;
  else if (std::holds_alternative<std::uint64_t>(number))
    large_ = true;
  else
    float_ = true;
}

DType NumberCensus::dtype(const std::string& name) const {
  if (!any_ || float_) return DType::f64;
  if (!large_) return DType::i64;
  if (negative_)
    throw Error(ErrorKind::data,
                Problem{.where = name.empty() ? std::vector<std::string>{} : std::vector{name},
                        .message = "has integers below 0 and above 2^63 - 1, which no 64-bit "
                                   "type can represent (write one with a '.' for floats)"});
  return DType::u64;
}

std::optional<double> number_typed(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

bool non_finite_named(std::string_view word, double& number) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "NaN")
    number = std::numeric_limits<double>::quiet_NaN();
  else if (word == "Infinity")
    number = kInfinity;
  else if (word == "-Infinity")
    number = -kInfinity;
  else
    return false;
  return true;
}

std::string_view non_finite_name(double number) {
  if (std::isnan(number)) return "NaN";
  return number > 0 ? "Infinity" : "-Infinity";
}

}  // namespace attn
