#include "attn/attention/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "attn/attention/running_error.h"
#include "attn/problem/rotary_inputs.h"

namespace attn {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Real is double, or RunningError for error bounds.

/// The index of the pair, as a real number, that makes `times` turns in original_length.
template <class Real>
Real pair_turning(double times, const Rotary& rotary, double r) {
  using std::log;
  const Real length = static_cast<double>(rotary.original_length);
  return r * log(length / (times * kTurn)) / (2 * log(Real(rotary.base)));
}

/// Peng et al. 2023, section 3.2. The ramp is over the pairs, as in the authors' code and in
/// _compute_yarn_parameters of transformers (which has `truncate`), not over the turns as in the
/// paper.
template <class Real>
Real yarn(Real frequency, double k, const Rotary& rotary, double r) {
  using std::ceil, std::floor;
  Real low = pair_turning<Real>(rotary.beta_fast, rotary, r);
  Real high = pair_turning<Real>(rotary.beta_slow, rotary, r);
  if (rotary.truncate) low = floor(low), high = ceil(high);
  low = std::max<Real>(low, 0.0), high = std::min<Real>(high, r - 1);
  const Real width = low == high ? Real(0.001) : high - low;  // never 0 / 0
  const Real slow = std::clamp<Real>((k - low) / width, 0.0, 1.0);
  return frequency / rotary.factor * slow + frequency * (1 - slow);
}

template <class Real>
Real llama3(Real frequency, const Rotary& rotary) {
  const Real turns = static_cast<double>(rotary.original_length) * frequency / kTurn;
  const Real low = rotary.low_frequency_factor, high = rotary.high_frequency_factor;
  if (turns < low) return frequency / rotary.factor;
  if (high < turns) return frequency;
  const Real fast = (turns - low) / (high - low);
  return (1 - fast) * frequency / rotary.factor + fast * frequency;
}

/// The factor of ntk for the context of the job, as in _compute_dynamic_ntk_parameters of
/// transformers.
template <class Real>
Real dynamic_factor(const Rotary& rotary, const Inputs& in) {
  const auto trained = static_cast<double>(rotary.original_length);
  const double length = std::max(static_cast<double>(in.last_position) + 1, trained);
  return Real(rotary.factor) * length / trained - (Real(rotary.factor) - 1);
}

template <class Real>
Real base_of(const Rotary& rotary, const Inputs& in, double r) {
  using std::pow;
  const bool dynamic = rotary.scaling == Rotary::Scaling::dynamic_ntk;
  if (!dynamic && rotary.scaling != Rotary::Scaling::ntk) return rotary.base;
  const Real factor = dynamic ? dynamic_factor<Real>(rotary, in) : Real(rotary.factor);
  return rotary.base * pow(factor, Real(r / (r - 2)));
}

template <class Real>
Real frequency(std::size_t pair, const Rotary& rotary, const Inputs& in, double r) {
  using std::pow;
  const auto k = static_cast<double>(pair);
  const Real plain = pow(base_of<Real>(rotary, in, r), Real(-2 * k / r));
  switch (rotary.scaling) {
    case Rotary::Scaling::linear:
      return plain / rotary.factor;
    case Rotary::Scaling::yarn:
      return yarn(plain, k, rotary, r);
    case Rotary::Scaling::llama3:
      return llama3(plain, rotary);
    case Rotary::Scaling::longrope:
      return plain / in.rotary_divisors->data<double>()[pair];
    case Rotary::Scaling::none:
    case Rotary::Scaling::ntk:
    case Rotary::Scaling::dynamic_ntk:
      break;
  }
  return plain;
}

template <class Real>
Real attention_factor(const Rotary& rotary) {
  using std::log, std::sqrt;
  const bool longrope = rotary.scaling == Rotary::Scaling::longrope;
  if (!longrope && rotary.scaling != Rotary::Scaling::yarn) return 1;
  if (rotary.attention_factor > 0) return rotary.attention_factor;
  const Real log_factor = log(Real(rotary.factor));
  if (!longrope) return 0.1 * log_factor + 1;
  const Real trained = static_cast<double>(rotary.original_length);
  return Real(0.0) < log_factor ? sqrt(1 + log_factor / log(trained)) : Real(1);
}

/// The rows of a table (positions, width) at `positions` (B, N): (B, N, width), f64.
Tensor rows_at(const Tensor& table, const Tensor& positions) {
  const Tensor doubles = cast(table, DType::f64);
  const std::size_t width = table.shape()[1];
  Tensor found(DType::f64, {positions.shape()[0], positions.shape()[1], width});
  double* out = found.mutable_data<double>().data();
  for (const std::int64_t at : positions.data<std::int64_t>()) {
    const auto row = doubles.data<double>().subspan(static_cast<std::size_t>(at) * width, width);
    out = std::copy(row.begin(), row.end(), out);
  }
  return found;
}

}  // namespace

Angles rotary_angles(const Inputs& in, const Tensor& positions,
                     const std::optional<Tensor>& cos_table,
                     const std::optional<Tensor>& sin_table) {
  if (cos_table && cos_table->rank() == 3)
    return {cast(*cos_table, DType::f64), cast(*sin_table, DType::f64)};
  if (cos_table) return {rows_at(*cos_table, positions), rows_at(*sin_table, positions)};
  const Rotary& rotary = in.options.rotary;
  const std::size_t r = rotated_columns(in);
  const Shape shape = {positions.shape()[0], positions.shape()[1], r / 2};
  Angles angles{Tensor(DType::f64, shape), Tensor(DType::f64, shape)};
  const auto indices = positions.data<std::int64_t>();
  const auto cos = angles.cos.mutable_data<double>(), sin = angles.sin.mutable_data<double>();
  const auto factor = attention_factor<double>(rotary);
  for (std::size_t k = 0; k < r / 2; ++k) {
    const auto f = frequency<double>(k, rotary, in, static_cast<double>(r));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const double angle = static_cast<double>(indices[i]) * f;
      cos[i * (r / 2) + k] = factor * std::cos(angle);
      sin[i * (r / 2) + k] = factor * std::sin(angle);
    }
  }
  return angles;
}

Tensor rotary_angle_errors(const Inputs& in, const Tensor& positions, double unit) {
  const Rotary& rotary = in.options.rotary;
  const std::size_t r = rotated_columns(in);
  Tensor errors(DType::f64, {positions.shape()[0], positions.shape()[1], r / 2});
  const auto indices = positions.data<std::int64_t>();
  const auto out = errors.mutable_data<double>();
  const auto factor = attention_factor<RunningError>(rotary);
  for (std::size_t k = 0; k < r / 2; ++k) {
    const auto f = frequency<RunningError>(k, rotary, in, static_cast<double>(r));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const double of_angle = (static_cast<double>(indices[i]) * f).error * unit;
      out[i * (r / 2) + k] =
          factor.value * (std::min(2.0, of_angle) + 2 * unit) + factor.error * unit;
    }
  }
  return errors;
}

Tensor rotated(const Tensor& x, const Angles& angles, Rotary::Kind kind, DType compute) {
  Tensor turned = cast(x, DType::f64);
  const auto cos = angles.cos.data<double>(), sin = angles.sin.data<double>();
  const auto out = turned.mutable_data<double>();
  each_rotated_pair(x.shape(), angles, kind, [&](std::size_t i, std::size_t j, std::size_t angle) {
    const double a = out[i], b = out[j];
    out[i] = a * cos[angle] - b * sin[angle];
    out[j] = a * sin[angle] + b * cos[angle];
  });
  return cast(turned, compute);
}

}  // namespace attn
