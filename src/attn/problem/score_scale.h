// The scale of the scores, resolved from the options.
#pragma once

#include <cmath>
#include <cstddef>

#include "attn/problem/options.h"

namespace attn {

/// scaled = multiplier * score, or score / sqrt(D).
struct ScoreScale {
  double multiplier = 1;
  std::size_t root_of = 0;  ///< D if scores are divided by sqrt(D), otherwise 0

  bool is_identity() const { return multiplier == 1 && root_of == 0; }
  double divisor() const { return std::sqrt(static_cast<double>(root_of)); }
  double factor() const { return root_of > 0 ? 1 / divisor() : multiplier; }
};

/// Whether scores are divided by sqrt(D), which has to be positive then.
inline bool divides_by_root(const Options& options) {
  return options.scale.kind == Scale::Kind::automatic && options.score == Score::dot;
}

/// `D` is the width of a query.
inline ScoreScale score_scale(const Options& options, std::size_t D) {
  if (options.scale.kind == Scale::Kind::number) return {.multiplier = options.scale.number};
  return {.root_of = divides_by_root(options) ? D : 0};
}

}  // namespace attn
