#include "attn/core/position.h"

#include <cmath>

namespace attn {
namespace {

double embedding_scale(const Position& position, std::size_t M) {
  return position.embedding_scale_sqrt ? std::sqrt(static_cast<double>(M))
                                       : position.embedding_scale;
}

bool is_left_out(const Position& position, std::size_t column, std::size_t M) {
  return position.last_column_zero && M % 2 == 1 && column == M - 1;
}

}  // namespace

Tensor sinusoidal_positions(const Position& position, std::size_t L, std::size_t M) {
  Tensor positions(DType::f64, {L, M});
  const auto out = positions.mutable_data<double>();
  const double doubled = position.exponent == Position::Exponent::doubled ? 2 : 1;
  for (std::size_t p = 0; p < L && M > 0; ++p)
    for (std::size_t column = 0; column < M; ++column) {
      if (is_left_out(position, column, M)) continue;
      const auto even = static_cast<double>(column - column % 2);
      const double place = static_cast<double>(position.first) + static_cast<double>(p);
      const double term = place / std::pow(position.base, doubled * even / static_cast<double>(M));
      out[p * M + column] = column % 2 == 0 ? std::sin(term) : std::cos(term);
    }
  return positions;
}

Tensor add_positions(const Tensor& embeddings, const Position& position, DType compute) {
  const std::size_t L = embeddings.shape()[1], M = embeddings.shape()[2];
  const double scale = embedding_scale(position, M);
  const bool sinusoidal = position.kind == Position::Kind::sinusoidal;
  if (!sinusoidal && scale == 1) return embeddings;
  Tensor inputs = cast(embeddings, DType::f64);
  const Tensor positions =
      sinusoidal ? sinusoidal_positions(position, L, M) : Tensor(DType::f64, {L, M});
  const auto added = positions.data<double>();
  const auto out = inputs.mutable_data<double>();
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] =
        sinusoidal && is_left_out(position, i % M, M) ? 0 : scale * out[i] + added[i % (L * M)];
  return cast(inputs, compute);
}

}  // namespace attn
