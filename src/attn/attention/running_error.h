// Running error analysis: bounds of rounding errors, computed along with the numbers (Higham 2002,
// Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.3).
#pragma once

#include <cmath>

namespace attn {

/// A number and the first-order bound of its error when every number and operation is rounded once.
/// It has the functions and operators of double, so that one template computes with both.
struct RunningError {
  double value;
  double error;  ///< in units of the unit roundoff

  /// A number that the computation rounds.
  RunningError(double number)  // NOLINT(google-explicit-constructor): mixed with numbers
      : value(number), error(std::abs(number)) {}

  friend RunningError operator+(RunningError a, RunningError b) {
    return rounded(a.value + b.value, a.error + b.error);
  }
  friend RunningError operator-(RunningError a, RunningError b) {
    return rounded(a.value - b.value, a.error + b.error);
  }
  friend RunningError operator*(RunningError a, RunningError b) {
    return rounded(a.value * b.value, a.error * std::abs(b.value) + b.error * std::abs(a.value));
  }
  friend RunningError operator/(RunningError a, RunningError b) {
    const double quotient = a.value / b.value;
    return rounded(quotient, (a.error + std::abs(quotient) * b.error) / std::abs(b.value));
  }
  friend bool operator<(RunningError a, RunningError b) { return a.value < b.value; }
  friend bool operator==(RunningError a, RunningError b) { return a.value == b.value; }

  /// Numbers next to a jump are taken to be on the right side of it.
  friend RunningError floor(RunningError a) { return {std::floor(a.value), 0}; }
  friend RunningError ceil(RunningError a) { return {std::ceil(a.value), 0}; }

  friend RunningError log(RunningError a) {
    return rounded(std::log(a.value), a.error / std::abs(a.value));
  }
  friend RunningError sqrt(RunningError a) {
    const double root = std::sqrt(a.value);
    return rounded(root, a.error / (2 * root));
  }
  /// As exp(x log a), with two roundings of the argument and one of the result.
  friend RunningError pow(RunningError a, RunningError x) {
    const double power = std::pow(a.value, x.value), log = std::abs(std::log(a.value));
    const double argument = std::abs(x.value) * (a.error / std::abs(a.value) + 2 * log);
    return rounded(power, std::abs(power) * (argument + x.error * log));
  }

 private:
  RunningError(double number, double bound) : value(number), error(bound) {}

  /// The result of an operation: its error before rounding, and that of rounding it.
  static RunningError rounded(double number, double before) {
    return {number, before + std::abs(number)};
  }
};

}  // namespace attn
