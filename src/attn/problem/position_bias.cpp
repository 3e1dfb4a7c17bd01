#include "attn/problem/position_bias.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace attn {

Tensor standard_slopes(std::size_t H) {
  const std::size_t n = std::bit_floor(H);
  Tensor slopes(DType::f64, {1, H});
  const auto out = slopes.mutable_data<double>();
  for (std::size_t h = 0; h < H; ++h) {
    const auto step = static_cast<double>(h < n ? 2 * (h + 1) : 2 * (h - n) + 1);
    out[h] = std::exp2(-4 * step / static_cast<double>(n));
  }
  return slopes;
}

Tensor alibi_bias(const Tensor& slopes, const Inputs& in) {
  const std::size_t B = std::max(slopes.shape()[0], in.token_positions.size());
  const Tensor doubles = cast(slopes, DType::f64);
  const auto slope = doubles.data<double>();
  Tensor bias(DType::f64, {B, in.H, in.rows.size(), in.S});
  double* out = bias.mutable_data<double>().data();
  for (std::size_t b = 0; b < B; ++b)
    for (std::size_t h = 0; h < in.H; ++h)
      for (const std::size_t i : in.rows) {
        const TokenPositions& tokens = in.token_positions[in.token_positions.size() == 1 ? 0 : b];
        const double m = slope[(slopes.shape()[0] == 1 ? 0 : b) * in.H + h];
        for (std::size_t j = 0; j < in.S; ++j, ++out)
          if (j < in.P + in.N)
            *out = -m * std::fabs(static_cast<double>(tokens.keys.position(j) -
                                                      tokens.queries.position(i)));
      }
  return cast(bias, in.compute);
}

std::size_t relative_bucket(std::int64_t ahead, std::size_t buckets, bool both_ways,
                            std::int64_t max_distance) {
  const std::size_t n = both_ways ? buckets / 2 : buckets, exact = n / 2;
  const std::size_t first = both_ways && ahead > 0 ? n : 0;
  const std::int64_t distance = both_ways ? std::abs(ahead) : std::max<std::int64_t>(-ahead, 0);
  if (distance < static_cast<std::int64_t>(exact))
    return first + static_cast<std::size_t>(distance);
  // In float32, as when the tables were trained, because rounding decides the bucket of a distance
  // on a boundary.
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

Tensor relative_bias(const Tensor& table, const Inputs& in) {
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
                bucket_of(keys.position(j) - queries.position(i), buckets, in.options);
            *out = doubles.data<double>()[bucket * in.H + h];
          }
  return cast(bias, in.compute);
}

}  // namespace attn
