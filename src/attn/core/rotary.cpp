#include "attn/core/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

namespace attn {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// The pair (a real number) that turns so many times in the original length.
double pair_turning(double times, const Rotary& rotary, double r) {
  const auto length = static_cast<double>(rotary.original_length);
  return r * std::log(length / (times * kTurn)) / (2 * std::log(rotary.base));
}

double yarn(double frequency, double k, const Rotary& rotary, double r) {
  const double low = std::max(std::floor(pair_turning(rotary.beta_fast, rotary, r)), 0.0);
  const double high = std::min(std::ceil(pair_turning(rotary.beta_slow, rotary, r)), r - 1);
  const double width = low == high ? 0.001 : high - low;  // never 0 / 0
  const double slow = std::clamp((k - low) / width, 0.0, 1.0);
  return frequency / rotary.factor * slow + frequency * (1 - slow);
}

double llama3(double frequency, const Rotary& rotary) {
  const double turns = static_cast<double>(rotary.original_length) * frequency / kTurn;
  const double low = rotary.low_frequency_factor, high = rotary.high_frequency_factor;
  if (turns < low) return frequency / rotary.factor;
  if (turns > high) return frequency;
  const double fast = (turns - low) / (high - low);
  return (1 - fast) * frequency / rotary.factor + fast * frequency;
}

double frequency(std::size_t pair, const Rotary& rotary, double r) {
  const auto k = static_cast<double>(pair);
  const double stretch =
      rotary.scaling == Rotary::Scaling::ntk ? std::pow(rotary.factor, r / (r - 2)) : 1;
  const double plain = std::pow(rotary.base * stretch, -2 * k / r);
  switch (rotary.scaling) {
    case Rotary::Scaling::linear:
      return plain / rotary.factor;
    case Rotary::Scaling::yarn:
      return yarn(plain, k, rotary, r);
    case Rotary::Scaling::llama3:
      return llama3(plain, rotary);
    case Rotary::Scaling::none:
    case Rotary::Scaling::ntk:
      break;
  }
  return plain;
}

double attention_factor(const Rotary& rotary) {
  if (rotary.scaling != Rotary::Scaling::yarn) return 1;
  return rotary.attention_factor > 0 ? rotary.attention_factor : 0.1 * std::log(rotary.factor) + 1;
}

/// The rows of a table (places, width) at the positions (B, N).
Tensor looked_up(const Tensor& table, const Tensor& positions) {
  const Tensor doubles = cast(table, DType::f64);
  const std::size_t width = table.shape()[1];
  Tensor found(DType::f64, {positions.shape()[0], positions.shape()[1], width});
  double* out = found.mutable_data<double>().data();
  for (const std::int64_t place : positions.data<std::int64_t>()) {
    const auto row = doubles.data<double>().subspan(static_cast<std::size_t>(place) * width, width);
    out = std::copy(row.begin(), row.end(), out);
  }
  return found;
}

}  // namespace

Angles rotary_angles(const Rotary& rotary, std::size_t D, const Tensor& positions) {
  const std::size_t r = rotary.width > 0 ? static_cast<std::size_t>(rotary.width) : D;
  const Shape shape = {positions.shape()[0], positions.shape()[1], r / 2};
  Angles angles{Tensor(DType::f64, shape), Tensor(DType::f64, shape)};
  const auto places = positions.data<std::int64_t>();
  const auto cos = angles.cos.mutable_data<double>(), sin = angles.sin.mutable_data<double>();
  const double factor = attention_factor(rotary);
  for (std::size_t k = 0; k < r / 2; ++k) {
    const double f = frequency(k, rotary, static_cast<double>(r));
    for (std::size_t i = 0; i < places.size(); ++i) {
      const double angle = static_cast<double>(places[i]) * f;
      cos[i * (r / 2) + k] = factor * std::cos(angle);
      sin[i * (r / 2) + k] = factor * std::sin(angle);
    }
  }
  return angles;
}

Angles rotary_angles(const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  if (cos.rank() == 3) return {cast(cos, DType::f64), cast(sin, DType::f64)};
  return {looked_up(cos, positions), looked_up(sin, positions)};
}

Tensor rotated(const Tensor& x, const Angles& angles, Rotary::Kind kind, DType compute) {
  Tensor turned = cast(x, DType::f64);
  const std::size_t heads = x.shape()[1], N = x.shape()[2], D = x.shape()[3];
  const std::size_t pairs = angles.cos.shape()[2], rows = angles.cos.shape()[0] * N;
  const bool half = kind == Rotary::Kind::half;
  const auto cos = angles.cos.data<double>(), sin = angles.sin.data<double>();
  const auto out = turned.mutable_data<double>();
  for (std::size_t row = 0; row * D < out.size(); ++row) {
    const std::size_t b = row / N / heads, angle = (b * N + row % N) % rows;
    for (std::size_t k = 0; k < pairs; ++k) {
      double& a = out[row * D + (half ? k : 2 * k)];
      double& c = out[row * D + (half ? k + pairs : 2 * k + 1)];
      const double cosine = cos[angle * pairs + k], sine = sin[angle * pairs + k], first = a;
      a = first * cosine - c * sine;
      c = first * sine + c * cosine;
    }
  }
  return cast(turned, compute);
}

}  // namespace attn
