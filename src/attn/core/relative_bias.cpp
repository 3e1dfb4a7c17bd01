#include "attn/core/relative_bias.h"

#include <algorithm>
#include <cmath>

namespace attn {

std::size_t relative_bucket(std::int64_t ahead, std::size_t buckets, bool both_ways,
                            std::int64_t max_distance) {
  const std::size_t n = both_ways ? buckets / 2 : buckets, exact = n / 2;
  const std::size_t first = both_ways && ahead > 0 ? n : 0;
  const std::int64_t distance = both_ways ? std::abs(ahead) : std::max<std::int64_t>(-ahead, 0);
  if (distance < static_cast<std::int64_t>(exact))
    return first + static_cast<std::size_t>(distance);
  // In float32, as when the tables were trained: rounding decides the bucket of a distance on a
  // border.
  const auto near = static_cast<float>(exact);
  const float share =
      std::log(static_cast<float>(distance) / near) /
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const auto wide = static_cast<std::size_t>(share * static_cast<float>(n - exact));
  return first + std::min(exact + wide, n - 1);
}

std::size_t bucket_of(std::int64_t ahead, std::size_t buckets, const Options& options) {
  using Direction = RelativeBias::Direction;
  const Direction direction = options.relative.direction;
  const bool both =
      direction == Direction::automatic ? !options.causal : direction == Direction::both;
  return relative_bucket(ahead, buckets, both, options.relative.max_distance);
}

Tensor relative_bias(const Tensor& table, const Inputs& in, const Options& options) {
  const std::size_t buckets = table.shape()[0];
  const Tensor doubles = cast(table, DType::f64);
  Tensor bias(DType::f64, {in.token_positions.size(), in.H, in.rows.size(), in.S});
  double* out = bias.mutable_data<double>().data();
  for (const auto& [queries, keys] : in.token_positions)
    for (std::size_t h = 0; h < in.H; ++h)
      for (const std::size_t i : in.rows)
        for (std::size_t j = 0; j < in.S; ++j, ++out)
          if (j < in.P + in.N) {
            const std::size_t bucket =
                bucket_of(keys.positions[j] - queries.positions[i], buckets, options);
            *out = doubles.data<double>()[bucket * in.H + h];
          }
  return cast(bias, in.compute);
}

}  // namespace attn
