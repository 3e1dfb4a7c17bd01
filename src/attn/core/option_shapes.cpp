#include "attn/core/option_shapes.h"

namespace attn {
namespace {

void check_score_weights(const TensorMap& tensors, Score score, AxisLengths& axes) {
  const auto take = [&](Input input, const AxisList& expected) {
    if (const Tensor* tensor = find(tensors, input)) axes.take(input, *tensor, expected);
  };
  if (score == Score::concat && axes.knows(Axis::D) && axes.knows(Axis::Dk)) {
    AxisLengths::Length both = axes[Axis::D];
    both.length += axes[Axis::Dk].length;
    both.remark += " beside " + axes[Axis::Dk].found();
    axes.settle(Axis::DDk, std::move(both));
    take(Input::W_score, {Axis::DDk, Axis::A});
  } else {
    take(Input::W_score, {Axis::D, Axis::Dk});
  }
  take(Input::W_score_Q, {Axis::D, Axis::A});
  if (score == Score::additive && !contains(tensors, Input::W_score_Q))
    axes.equate(Axis::A, Axis::D);
  take(Input::W_score_K, {Axis::Dk, Axis::A});
  if (score == Score::additive && !contains(tensors, Input::W_score_K) && axes.knows(Axis::A) &&
      axes.knows(Axis::Dk) && axes[Axis::A].length != axes[Axis::Dk].length)
    axes.problem(Input::W_score_K,
                 {.expected = "(" + std::to_string(axes[Axis::Dk].length) + ", " +
                              std::to_string(axes[Axis::A].length) + ") to match " +
                              std::string(axes[Axis::A].name) + " " + axes[Axis::A].found(),
                  .found = "none"});
  take(Input::b_score, {Axis::A});
  take(Input::v_score, {Axis::A});
  if (const Tensor* g = find(tensors, Input::g_score); g != nullptr && g->size() != 1)
    axes.problem(Input::g_score, {.expected = "one number", .found = to_string(g->shape())});
}

void check_relative_bias(const Tensor& table, const Options& options, AxisLengths& axes) {
  using Direction = RelativeBias::Direction;
  const Direction direction = options.relative.direction;
  const bool both =
      direction == Direction::automatic ? !options.causal : direction == Direction::both;
  axes.take(Input::relative_bias, table, {Axis::buckets, Axis::H});
  const std::size_t least = both ? 4 : 2, found = table.rank() > 0 ? table.shape()[0] : 0;
  if (found < least || (both && found % 2 != 0))
    return axes.problem(
        Input::relative_bias,
        {.expected = "at least " + std::to_string(least) +
                     (both ? " buckets and an even number, for both directions" : " buckets"),
         .found = to_string(table.shape())});
  const auto exact = static_cast<std::int64_t>(found / (both ? 4 : 2));
  if (options.relative.max_distance <= exact)
    axes.problem({.subject = "relative.max_distance",
                  .expected = "more than " + std::to_string(exact) +
                              ", the number of buckets for single distances",
                  .found = std::to_string(options.relative.max_distance)});
}

}  // namespace

void check_option_shapes(const TensorMap& tensors, const Options& options, AxisLengths& axes) {
  for (const Input vector :
       {Input::bias_K, Input::bias_V, Input::q_norm, Input::k_norm, Input::sinks})
    if (const Tensor* tensor = find(tensors, vector))
      axes.take(vector, *tensor, row_of(vector).axes);
  if (const Tensor* slopes = find(tensors, Input::alibi_slopes)) {
    const bool each = slopes->rank() == 2 && axes.knows(Axis::B);
    axes.take(Input::alibi_slopes, *slopes, each ? AxisList{Axis::B, Axis::H} : AxisList{Axis::H});
  }
  if (const Tensor* table = find(tensors, Input::relative_bias))
    check_relative_bias(*table, options, axes);
  check_score_weights(tensors, options.score, axes);
}

}  // namespace attn
