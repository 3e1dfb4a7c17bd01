#include "attn/core/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "attn/base/number_text.h"
#include "attn/core/shapes.h"

namespace attn {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// The index of the pair, as a real number, that makes `times` turns in original_length.
double pair_turning(double times, const Rotary& rotary, double r) {
  const auto length = static_cast<double>(rotary.original_length);
  return r * std::log(length / (times * kTurn)) / (2 * std::log(rotary.base));
}

/// Peng et al. 2023, section 3.2. The ramp is over the pairs, as in the authors' code and in
/// _compute_yarn_parameters of transformers (which has `truncate`), not over the turns as in the
/// paper.
double yarn(double frequency, double k, const Rotary& rotary, double r) {
  double low = pair_turning(rotary.beta_fast, rotary, r);
  double high = pair_turning(rotary.beta_slow, rotary, r);
  if (rotary.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, r - 1);
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

/// The factor of ntk for the context of the job, as in _compute_dynamic_ntk_parameters of
/// transformers.
double dynamic_factor(const Rotary& rotary, const Inputs& in) {
  const auto trained = static_cast<double>(rotary.original_length);
  const double length = std::max(static_cast<double>(in.last_position) + 1, trained);
  return rotary.factor * length / trained - (rotary.factor - 1);
}

double base_of(const Rotary& rotary, const Inputs& in, double r) {
  double factor = 1;
  if (rotary.scaling == Rotary::Scaling::ntk) factor = rotary.factor;
  if (rotary.scaling == Rotary::Scaling::dynamic_ntk) factor = dynamic_factor(rotary, in);
  return rotary.base * std::pow(factor, r / (r - 2));
}

double frequency(std::size_t pair, const Rotary& rotary, const Inputs& in, double r) {
  const auto k = static_cast<double>(pair);
  const double plain = std::pow(base_of(rotary, in, r), -2 * k / r);
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

double attention_factor(const Rotary& rotary) {
  const bool longrope = rotary.scaling == Rotary::Scaling::longrope;
  if (!longrope && rotary.scaling != Rotary::Scaling::yarn) return 1;
  if (rotary.attention_factor > 0) return rotary.attention_factor;
  const double log = std::log(rotary.factor);
  if (!longrope) return 0.1 * log + 1;
  return log > 0 ? std::sqrt(1 + log / std::log(static_cast<double>(rotary.original_length))) : 1;
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

Angles rotary_angles(const Rotary& rotary, const Inputs& in, const Tensor& positions) {
  if (in.cos && in.cos->rank() == 3) return {cast(*in.cos, DType::f64), cast(*in.sin, DType::f64)};
  if (in.cos) return {rows_at(*in.cos, positions), rows_at(*in.sin, positions)};
  const std::size_t r = rotary.width > 0 ? static_cast<std::size_t>(rotary.width) : in.D;
  const Shape shape = {positions.shape()[0], positions.shape()[1], r / 2};
  Angles angles{Tensor(DType::f64, shape), Tensor(DType::f64, shape)};
  const auto indices = positions.data<std::int64_t>();
  const auto cos = angles.cos.mutable_data<double>(), sin = angles.sin.mutable_data<double>();
  const double factor = attention_factor(rotary);
  for (std::size_t k = 0; k < r / 2; ++k) {
    const double f = frequency(k, rotary, in, static_cast<double>(r));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const double angle = static_cast<double>(indices[i]) * f;
      cos[i * (r / 2) + k] = factor * std::cos(angle);
      sin[i * (r / 2) + k] = factor * std::sin(angle);
    }
  }
  return angles;
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

namespace {

/// first, first + 1, ...: (1, N).
Tensor counted(std::size_t first, std::size_t N) {
  Tensor positions(DType::i64, {1, N});
  auto next = static_cast<std::int64_t>(first);
  for (std::int64_t& position : positions.mutable_data<std::int64_t>()) position = next++;
  return positions;
}

/// The tensor `name`, (N) or (B, N), with both axes.
std::optional<Tensor> given_positions(Input input, const TensorMap& numbers, std::size_t B,
                                      std::size_t N, AxisLengths& axes) {
  const Tensor* tensor = find(numbers, input);
  if (tensor == nullptr) return std::nullopt;
  const Shape& shape = tensor->shape();
  if (tensor->dtype() == DType::i64 && shape == Shape{N}) return tensor->reshaped({1, N});
  if (tensor->dtype() == DType::i64 && shape == Shape{B, N}) return *tensor;
  axes.problem(input,
               {.expected = "whole numbers of shape " + to_string({N}) + " or " + to_string({B, N}),
                .found = std::string(name_of(tensor->dtype())) + " " + to_string(shape)});
  return std::nullopt;
}

std::string text_of(double number) {
  std::string text;
  append_number(text, number);
  return text;
}

/// query_positions, and key_positions if keys have any.
void set_positions(const TensorMap& numbers, bool keys_rotate, Inputs& in, AxisLengths& axes) {
  const auto queries = given_positions(Input::position_ids, numbers, in.B, in.L, axes);
  in.query_positions = queries ? *queries : counted(in.past_of_memory ? 0 : in.P, in.L);
  if (!keys_rotate) return;
  const auto keys = given_positions(Input::key_position_ids, numbers, in.B, in.N, axes);
  in.key_positions = keys ? *keys : queries && in.N == in.L ? *queries : counted(in.P, in.N);
  if (queries && !keys && in.N != in.L)
    axes.problem(Input::key_position_ids,
                 {.message = "required because there are " + std::to_string(in.N) +
                             " new keys but " + std::to_string(in.L) + " queries"});
  for (const Tensor& positions : {in.query_positions, in.key_positions})
    for (const std::int64_t position : positions.data<std::int64_t>())
      in.last_position = std::max(in.last_position, position);
}

/// Requires tables (positions, r / 2) with a row for every position, or (B, N, r / 2) if N = L.
void check_tables(const Tensor& cos, const Tensor& sin, const Inputs& in, AxisLengths& axes) {
  const Shape& shape = cos.shape();
  const auto refuse = [&](const std::string& expected) {
    axes.problem(Input::cos, {.expected = expected, .found = to_string(shape)});
  };
  if (sin.shape() != shape)
    return axes.problem(Input::sin, {.expected = "the shape of cos " + to_string(shape),
                                     .found = to_string(sin.shape())});
  if (shape.size() < 2 || shape.size() > 3 || shape.back() == 0 || 2 * shape.back() > in.D)
    return refuse("(positions, r/2) or (B, L, r/2) with r up to " + std::to_string(in.D));
  if (shape.size() == 3 &&
      ((shape[0] != in.B && shape[0] != 1) || shape[1] != in.L || in.N != in.L))
    return refuse("(" + std::to_string(in.B) + ", " + std::to_string(in.L) +
                  ", r/2), and as many new keys as queries");
  const auto outside = [&](std::int64_t position) {
    return position < 0 || position >= static_cast<std::int64_t>(shape[0]);
  };
  for (const Tensor& positions : {in.query_positions, in.key_positions}) {
    const auto all = positions.data<std::int64_t>();
    const auto far = std::find_if(all.begin(), all.end(), outside);
    if (shape.size() == 2 && far != all.end())
      return refuse("a row for position " + std::to_string(*far));
  }
}

}  // namespace

void set_rotary(const TensorMap& numbers, const Options& options, Inputs& in, AxisLengths& axes) {
  const Rotary& rotary = options.rotary;
  const bool rotates = rotary.kind != Rotary::Kind::none;
  if (rotates || options.query_scale.factor != 0) set_positions(numbers, rotates, in, axes);
  if (!rotates) return;
  if (!(rotary.low_frequency_factor < rotary.high_frequency_factor))
    axes.problem({.subject = "rotary.low_frequency_factor",
                  .expected = "less than rotary.high_frequency_factor = " +
                              text_of(rotary.high_frequency_factor),
                  .found = text_of(rotary.low_frequency_factor)});
  if (contains(numbers, Input::cos) && contains(numbers, Input::sin))
    return check_tables(at(numbers, Input::cos), at(numbers, Input::sin), in, axes);
  const auto D = static_cast<std::int64_t>(in.D), width = rotary.width > 0 ? rotary.width : D;
  const bool ntk =
      rotary.scaling == Rotary::Scaling::ntk || rotary.scaling == Rotary::Scaling::dynamic_ntk;
  if (width % 2 != 0 || width > D || width < (ntk ? 4 : 2))
    axes.problem({.subject = "rotary.width",
                  .expected = "an even number from 2 to " + std::to_string(D) +
                              (ntk ? ", and with ntk more than 2" : ""),
                  .found = std::to_string(width)});
}

void set_rotary_divisors(const TensorMap& tensors, const Rotary& rotary, Inputs& in,
                         AxisLengths& axes) {
  if (rotary.kind == Rotary::Kind::none || rotary.scaling != Rotary::Scaling::longrope) return;
  const std::size_t r = rotary.width > 0 ? static_cast<std::size_t>(rotary.width) : in.D;
  for (const Input input : {Input::short_factor, Input::long_factor}) {
    const Tensor divisors = cast(at(tensors, input), DType::f64);
    const auto is_divisor = [](double x) { return x > 0 && std::isfinite(x); };
    const auto all = divisors.data<double>();
    if (divisors.shape() != Shape{r / 2})
      axes.problem(input, {.expected = "a number for each pair of columns, " + to_string({r / 2}),
                           .found = to_string(divisors.shape())});
    else if (!std::all_of(all.begin(), all.end(), is_divisor))
      axes.problem(input, {.expected = "finite numbers > 0", .found = "another number"});
    else if ((input == Input::long_factor) == (in.last_position >= rotary.original_length))
      in.rotary_divisors = divisors;
  }
}

}  // namespace attn
