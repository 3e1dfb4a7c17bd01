#include "attn/report/float_format.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

/// The quotient in the dtype's arithmetic; f16 and f32 may overflow or round.
double quotient(double a, double b, DType dtype) {
  if (dtype == DType::f64) return a / b;
  const float result = static_cast<float>(a) / static_cast<float>(b);
  return dtype == DType::f16 ? double(Half(result)) : double(result);
}

Notation notation_for(const std::vector<double>& finite, DType dtype, bool suppress) {
  double least = HUGE_VAL, most = 0;
  for (const double value : finite) {
    const double magnitude = std::fabs(value);
    if (magnitude == 0) continue;
    least = std::min(least, magnitude);
    most = std::max(most, magnitude);
  }
  if (most == 0) return Notation::positional;
  const bool wide = most >= 1e8;
  const bool small = !suppress && (least < 1e-4 || quotient(most, least, dtype) > 1000);
  return wide || small ? Notation::scientific : Notation::positional;
}

}  // namespace

FloatFormat::FloatFormat(const std::vector<double>& values, DType dtype,
                         const PrintOptions& options)
    : dtype_(dtype) {
  std::vector<double> finite;
  bool below = false;  // some value is -inf
  for (const double value : values) {
    if (std::isfinite(value)) finite.push_back(value);
    below = below || (std::isinf(value) && value < 0);
  }
  measure(finite, options);
  if (finite.size() == values.size()) return;
  const std::size_t widest = below ? 4 : 3;  // "-inf"; else "nan", "inf"
  left_ = std::max(left_, widest - std::min(widest, right_ + 1));
}

void FloatFormat::measure(const std::vector<double>& finite, const PrintOptions& options) {
  if (finite.empty()) return;
  const bool fixed = options.floatmode == PrintOptions::FloatMode::fixed;
  const bool unlimited = options.floatmode == PrintOptions::FloatMode::unique;
  notation_ = notation_for(finite, dtype_, options.suppress);
  rule_.unique = !fixed;
  rule_.most = unlimited ? -1 : options.precision;
  rule_.trim_zeros = !fixed;
  for (const double value : finite) {
    const std::string text = number_text(value, dtype_, notation_, rule_);
    const std::size_t point = text.find('.'), e = std::min(text.find('e'), text.size());
    left_ = std::max(left_, point);
    right_ = std::max(right_, e - point - 1);
    if (e < text.size()) exponent_ = std::max(exponent_, text.size() - e - 2);
  }
  const bool equal = notation_ == Notation::scientific || fixed ||
                     options.floatmode == PrintOptions::FloatMode::maxprec_equal;
  rule_.trim_zeros = !equal;
  rule_.fewest = equal ? static_cast<int>(right_) : 0;
  if (equal) rule_.most = rule_.fewest;
  if (notation_ == Notation::scientific) right_ += exponent_ + 2;
}

std::string FloatFormat::operator()(double value) const {
  const std::size_t width = left_ + 1 + right_;
  if (!std::isfinite(value)) {
    const std::string text = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    return std::string(width - std::min(width, text.size()), ' ') + text;
  }
  std::string text = number_text(value, dtype_, notation_, rule_);
  text.insert(0, left_ - std::min(left_, text.find('.')), ' ');
  if (notation_ == Notation::scientific) {
    const std::size_t digits = text.find('e') + 2;
    text.insert(digits, exponent_ - std::min(exponent_, text.size() - digits), '0');
  } else if (text.size() < width) {
    text.append(width - text.size(), ' ');
  }
  return text;
}

}  // namespace attn
