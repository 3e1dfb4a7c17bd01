#include "attn/problem/rotary_inputs.h"

#include <algorithm>
#include <cmath>

#include "attn/base/number_text.h"

namespace attn {
namespace {

/// first, first + 1, ...: (1, N).
Tensor consecutive(std::size_t first, std::size_t N) {
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

std::string factor_text(double number) {
  std::string text;
  append_number(text, number);
  return text;
}

/// query_positions, and key_positions if keys have any.
void set_rotary_positions(const TensorMap& numbers, bool keys_rotate, Inputs& in,
                          AxisLengths& axes) {
  const auto queries = given_positions(Input::position_ids, numbers, in.B, in.L, axes);
  in.query_positions = queries ? *queries : consecutive(in.past_of_memory ? 0 : in.P, in.L);
  if (!keys_rotate) return;
  const auto keys = given_positions(Input::key_position_ids, numbers, in.B, in.N, axes);
  in.key_positions = keys ? *keys : queries && in.N == in.L ? *queries : consecutive(in.P, in.N);
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

/// Checks the tables or options that angles are computed from.
void check_angles(const TensorMap& numbers, const Inputs& in, AxisLengths& axes) {
  const Rotary& rotary = in.options.rotary;
  if (!(rotary.low_frequency_factor < rotary.high_frequency_factor))
    axes.problem({.subject = "rotary.low_frequency_factor",
                  .expected = "less than rotary.high_frequency_factor = " +
                              factor_text(rotary.high_frequency_factor),
                  .found = factor_text(rotary.low_frequency_factor)});
  if (contains(numbers, Input::cos) && contains(numbers, Input::sin))
    return check_tables(at(numbers, Input::cos), at(numbers, Input::sin), in, axes);
  const auto D = static_cast<std::int64_t>(in.D), width = rotary.width > 0 ? rotary.width : D;
  const bool ntk =
      rotary.scaling == Rotary::Scaling::ntk || rotary.scaling == Rotary::Scaling::dynamic_ntk;
  const std::int64_t least = ntk ? 4 : 2;
  if (D < least)
    axes.problem({.subject = "rotary.kind",
                  .expected = "heads of at least " + std::to_string(least) + " columns",
                  .found = std::to_string(D)});
  else if (width % 2 != 0 || width > D || width < least)
    axes.problem(
        {.subject = "rotary.width",
         .expected = "an even number from " + std::to_string(least) + " to " + std::to_string(D),
         .found = std::to_string(width)});
}

/// The factors of longrope in full precision, for the context length that the positions have.
void set_rotary_divisors(Inputs& in, AxisLengths& axes) {
  const std::size_t r = rotated_columns(in);
  for (const Input input : {Input::short_factor, Input::long_factor}) {
    const Tensor divisors = cast(at(in.tensors, input), DType::f64);
    const auto is_divisor = [](double x) { return x > 0 && std::isfinite(x); };
    const auto all = divisors.data<double>();
    if (divisors.shape() != Shape{r / 2})
      axes.problem(input, {.expected = "a number for each pair of columns, " + to_string({r / 2}),
                           .found = to_string(divisors.shape())});
    else if (!std::all_of(all.begin(), all.end(), is_divisor))
      axes.problem(input, {.expected = "finite numbers > 0", .found = "another number"});
    else if ((input == Input::long_factor) ==
             (in.last_position >= in.options.rotary.original_length))
      in.rotary_divisors = divisors;
  }
}

}  // namespace

std::size_t rotated_columns(const Inputs& in) {
  const std::int64_t width = in.options.rotary.width;
  return width > 0 ? static_cast<std::size_t>(width) : in.D;
}

void set_rotary_inputs(const TensorMap& numbers, Inputs& in, AxisLengths& axes) {
  const Rotary& rotary = in.options.rotary;
  const bool rotates = rotary.kind != Rotary::Kind::none;
  if (rotates || in.options.query_scale.factor != 0)
    set_rotary_positions(numbers, rotates, in, axes);
  if (!rotates) return;
  check_angles(numbers, in, axes);
  if (rotary.scaling == Rotary::Scaling::longrope) set_rotary_divisors(in, axes);
}

}  // namespace attn
