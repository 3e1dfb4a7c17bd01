#include <algorithm>

#include "attn/base/number_text.h"
#include "attn/core/option_shapes.h"

namespace attn {
namespace {

/// first, first + 1, ...: (1, N).
Tensor counted(std::size_t first, std::size_t N) {
  Tensor positions(DType::i64, {1, N});
  auto next = static_cast<std::int64_t>(first);
  for (std::int64_t& place : positions.mutable_data<std::int64_t>()) place = next++;
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

void set_positions(const TensorMap& numbers, Inputs& in, AxisLengths& axes) {
  const auto queries = given_positions(Input::position_ids, numbers, in.B, in.L, axes);
  const auto keys = given_positions(Input::key_position_ids, numbers, in.B, in.N, axes);
  in.query_positions = queries ? *queries : counted(in.past_of_memory ? 0 : in.P, in.L);
  in.key_positions = keys ? *keys : queries && in.N == in.L ? *queries : counted(in.P, in.N);
  if (queries && !keys && in.N != in.L)
    axes.problem(Input::key_position_ids,
                 {.expected = "the positions of the " + std::to_string(in.N) +
                              " new keys, because their number differs from that of the " +
                              std::to_string(in.L) + " queries",
                  .found = "none"});
}

/// Tables (places, r / 2) that reach every position, or (B, N, r / 2) for as many keys as queries.
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
  const auto outside = [&](std::int64_t place) {
    return place < 0 || place >= static_cast<std::int64_t>(shape[0]);
  };
  for (const Tensor& positions : {in.query_positions, in.key_positions}) {
    const auto places = positions.data<std::int64_t>();
    const auto far = std::find_if(places.begin(), places.end(), outside);
    if (shape.size() == 2 && far != places.end())
      return refuse("a row for position " + std::to_string(*far));
  }
}

}  // namespace

void set_rotary(const TensorMap& numbers, const Options& options, Inputs& in, AxisLengths& axes) {
  const Rotary& rotary = options.rotary;
  if (rotary.kind == Rotary::Kind::none) return;
  if (!(rotary.low_frequency_factor < rotary.high_frequency_factor))
    axes.problem({.subject = "rotary.low_frequency_factor",
                  .expected = "less than rotary.high_frequency_factor = " +
                              text_of(rotary.high_frequency_factor),
                  .found = text_of(rotary.low_frequency_factor)});
  set_positions(numbers, in, axes);
  if (contains(numbers, Input::cos) && contains(numbers, Input::sin))
    return check_tables(at(numbers, Input::cos), at(numbers, Input::sin), in, axes);
  const auto D = static_cast<std::int64_t>(in.D), width = rotary.width > 0 ? rotary.width : D;
  const bool ntk = rotary.scaling == Rotary::Scaling::ntk;
  if (width % 2 != 0 || width > D || width < (ntk ? 4 : 2))
    axes.problem({.subject = "rotary.width",
                  .expected = "an even number from 2 to " + std::to_string(D) +
                              (ntk ? ", and with ntk more than 2" : ""),
                  .found = std::to_string(width)});
}

}  // namespace attn
