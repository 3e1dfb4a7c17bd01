#include "attn/core/option_shapes.h"

namespace attn {
namespace {

void check_score_weights(const TensorMap& tensors, Score score, Axes& axes) {
  const auto take = [&](const char* name, std::initializer_list<Letter> letters) {
    if (const Tensor* tensor = tensors.find(name)) axes.take(name, *tensor, letters);
  };
  if (score == Score::concat && axes.knows(Letter::D) && axes.knows(Letter::Dk)) {
    Axes::Axis both = axes[Letter::D];
    both.length += axes[Letter::Dk].length;
    both.remark += " beside " + axes[Letter::Dk].found();
    axes.settle(Letter::DDk, std::move(both));
    take("W_score", {Letter::DDk, Letter::A});
  } else {
    take("W_score", {Letter::D, Letter::Dk});
  }
  take("W_score_Q", {Letter::D, Letter::A});
  if (score == Score::additive && !tensors.contains("W_score_Q")) axes.equate(Letter::A, Letter::D);
  take("W_score_K", {Letter::Dk, Letter::A});
  if (score == Score::additive && !tensors.contains("W_score_K") && axes.knows(Letter::A) &&
      axes.knows(Letter::Dk) && axes[Letter::A].length != axes[Letter::Dk].length)
    axes.problem({.subject = "W_score_K",
                  .expected = "(" + std::to_string(axes[Letter::Dk].length) + ", " +
                              std::to_string(axes[Letter::A].length) + ") to match " +
                              std::string(axes[Letter::A].name) + " " + axes[Letter::A].found(),
                  .found = "none"});
  take("b_score", {Letter::A});
  take("v_score", {Letter::A});
  if (const Tensor* g = tensors.find("g_score"); g != nullptr && g->size() != 1)
    axes.problem({.subject = "g_score", .expected = "one number", .found = to_string(g->shape())});
}

void check_relative_bias(const Tensor& table, const Options& options, Axes& axes) {
  using Direction = RelativeBias::Direction;
  const Direction direction = options.relative.direction;
  const bool both =
      direction == Direction::automatic ? !options.causal : direction == Direction::both;
  axes.take("relative_bias", table, {Letter::buckets, Letter::H});
  const std::size_t least = both ? 4 : 2, found = table.rank() > 0 ? table.shape()[0] : 0;
  if (found < least || (both && found % 2 != 0))
    return axes.problem(
        {.subject = "relative_bias",
         .expected = "at least " + std::to_string(least) +
                     (both ? " buckets, an even number, to look both ways" : " buckets"),
         .found = to_string(table.shape())});
  const auto exact = static_cast<std::int64_t>(found / (both ? 4 : 2));
  if (options.relative.max_distance <= exact)
    axes.problem(
        {.subject = "relative.max_distance",
         .expected = "more than " + std::to_string(exact) + ", a quarter or half of the buckets",
         .found = std::to_string(options.relative.max_distance)});
}

}  // namespace

void check_option_shapes(const TensorMap& tensors, const Options& options, Axes& axes) {
  static constexpr std::pair<const char*, Letter> kVectors[] = {{"bias_K", Letter::GD},
                                                                {"bias_V", Letter::GDv},
                                                                {"q_norm", Letter::D},
                                                                {"k_norm", Letter::Dk},
                                                                {"sinks", Letter::H}};
  for (const auto& [name, letter] : kVectors)
    if (const Tensor* tensor = tensors.find(name)) axes.take(name, *tensor, {letter});
  if (const Tensor* slopes = tensors.find("alibi_slopes")) {
    const bool each = slopes->rank() == 2 && axes.knows(Letter::B);
    axes.take("alibi_slopes", *slopes, each ? Letters{Letter::B, Letter::H} : Letters{Letter::H});
  }
  if (const Tensor* table = tensors.find("relative_bias"))
    check_relative_bias(*table, options, axes);
  check_score_weights(tensors, options.score, axes);
}

}  // namespace attn
