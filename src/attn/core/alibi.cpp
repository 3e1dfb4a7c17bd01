#include "attn/core/alibi.h"

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
            *out = -m * std::fabs(static_cast<double>(tokens.keys.positions[j] -
                                                      tokens.queries.positions[i]));
      }
  return cast(bias, in.compute);
}

}  // namespace attn
