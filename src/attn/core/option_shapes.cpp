#include "attn/core/option_shapes.h"

namespace attn {
namespace {

void check_score_weights(const TensorMap& tensors, Score score, Axes& axes) {
  const auto take = [&](const char* name, std::initializer_list<std::string_view> letters) {
    if (const Tensor* tensor = tensors.find(name)) axes.take(name, *tensor, letters);
  };
  if (score == Score::concat && axes.knows("D") && axes.knows("Dk")) {
    Axes::Axis both = axes["D"];
    both.length += axes["Dk"].length;
    both.remark += " beside " + axes["Dk"].found();
    axes.settle("D+Dk", std::move(both));
    take("W_score", {"D+Dk", "A"});
  } else {
    take("W_score", {"D", "Dk"});
  }
  take("W_score_Q", {"D", "A"});
  if (score == Score::additive && !tensors.contains("W_score_Q")) axes.equate("A", "D");
  take("W_score_K", {"Dk", "A"});
  if (score == Score::additive && !tensors.contains("W_score_K") && axes.knows("A") &&
      axes.knows("Dk") && axes["A"].length != axes["Dk"].length)
    axes.problem("W_score_K: expected (" + std::to_string(axes["Dk"].length) + ", " +
                 std::to_string(axes["A"].length) + ") to match " +
                 std::string(axes["A"].name) + " " + axes["A"].found() + ", found none");
  take("b_score", {"A"});
  take("v_score", {"A"});
  if (const Tensor* g = tensors.find("g_score"); g != nullptr && g->size() != 1)
    axes.problem("g_score: expected one number, found " + to_string(g->shape()));
}

void check_relative_bias(const Tensor& table, const Options& options, Axes& axes) {
  using Direction = RelativeBias::Direction;
  const Direction direction = options.relative.direction;
  const bool both =
      direction == Direction::automatic ? !options.causal : direction == Direction::both;
  axes.take("relative_bias", table, {"buckets", "H"});
  const std::size_t least = both ? 4 : 2, found = table.rank() > 0 ? table.shape()[0] : 0;
  if (found < least || (both && found % 2 != 0))
    return axes.problem("relative_bias: expected at least " + std::to_string(least) +
                        (both ? " buckets, an even number, to look both ways" : " buckets") +
                        ", found " + to_string(table.shape()));
  const auto exact = static_cast<std::int64_t>(found / (both ? 4 : 2));
  if (options.relative.max_distance <= exact)
    axes.problem("relative.max_distance: expected more than " + std::to_string(exact) +
                 ", a quarter or half of the buckets, found " +
                 std::to_string(options.relative.max_distance));
}

}  // namespace

void check_option_shapes(const TensorMap& tensors, const Options& options, Axes& axes) {
  static constexpr std::pair<const char*, const char*> kVectors[] = {
      {"bias_K", "GD"}, {"bias_V", "GDv"}, {"q_norm", "D"}, {"k_norm", "Dk"}, {"sinks", "H"}};
  for (const auto& [name, letter] : kVectors)
    if (const Tensor* tensor = tensors.find(name)) axes.take(name, *tensor, {letter});
  if (const Tensor* slopes = tensors.find("alibi_slopes")) {
    const bool each = slopes->rank() == 2 && axes.knows("B");
    axes.take("alibi_slopes", *slopes,
              each ? Letters{"B", "H"} : Letters{"H"});
  }
  if (const Tensor* table = tensors.find("relative_bias"))
    check_relative_bias(*table, options, axes);
  check_score_weights(tensors, options.score, axes);
}

}  // namespace attn
