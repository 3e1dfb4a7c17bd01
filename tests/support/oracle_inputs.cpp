// The steps of the oracle before the scores: positions, projections and heads.
#include <cmath>

#include "support/oracle.h"

namespace oracle {

namespace {

bool left_out(const attn::Position& position, std::size_t column, std::size_t M) {
  return position.last_column_zero && M % 2 == 1 && column + 1 == M;
}

}  // namespace

Numbers positions(const attn::Position& position, std::size_t L, std::size_t M) {
  Numbers result;
  for (std::size_t row = 0; row < L; ++row)
    for (std::size_t column = 0; column < M; ++column) {
      long double exponent = static_cast<long double>(column / 2 * 2) / static_cast<long double>(M);
      if (position.exponent == attn::Position::Exponent::doubled) exponent *= 2;
      const long double place =
          static_cast<long double>(position.first) + static_cast<long double>(row);
      const long double term = place / std::pow(static_cast<long double>(position.base), exponent);
      const long double wave = column % 2 == 1 ? std::cos(term) : std::sin(term);
      result.values.push_back(left_out(position, column, M) ? 0 : wave);
      // A dozen roundings in double give the term a relative error of a dozen units, and the sine
      // no larger one.
      result.error = std::max(result.error, 12 * 0x1p-53L * (1 + std::fabs(term)));
    }
  return result;
}

Numbers add_positions(const Numbers& embeddings, const Numbers& positions,
                      const attn::Position& position, std::size_t L, std::size_t M, long double u) {
  const long double scale = position.embedding_scale_sqrt ? std::sqrt(static_cast<long double>(M))
                                                          : position.embedding_scale;
  Numbers result;
  for (std::size_t i = 0; i < embeddings.values.size(); ++i) {
    const long double sum = scale * embeddings.values[i] + positions.values[i % (L * M)];
    result.values.push_back(left_out(position, i % M, M) ? 0 : sum);
    const long double magnitude = std::fabs(scale * embeddings.values[i]) + 1;
    result.error = std::max(result.error, positions.error + (4 * 0x1p-53L + u) * magnitude);
  }
  return result;
}

Numbers project(const Numbers& x, const std::vector<long double>* W,
                const std::vector<long double>* b, std::size_t M, std::size_t P, long double u) {
  Numbers y;
  const std::size_t N = M == 0 ? 0 : x.values.size() / M;
  for (std::size_t row = 0; row < N; ++row)
    for (std::size_t c = 0; c < P; ++c) {
      long double sum = W ? 0 : x.values[row * M + c], magnitude = std::fabs(sum);
      long double handed_on = W ? 0 : x.error;
      for (std::size_t m = 0; W && m < M; ++m) {
        sum += x.values[row * M + m] * (*W)[m * P + c];
        magnitude += std::fabs(x.values[row * M + m] * (*W)[m * P + c]);
        handed_on += x.error * std::fabs((*W)[m * P + c]);
      }
      if (b) sum += (*b)[c], magnitude += std::fabs((*b)[c]);
      y.values.push_back(sum);
      y.error = std::max(y.error, (static_cast<long double>(M) + 3) * u * magnitude + handed_on);
    }
  return y;
}

std::vector<long double> broadcast(const std::vector<long double>& values, const attn::Shape& from,
                                   const attn::Shape& to) {
  const auto at = [&](std::size_t axis, std::size_t i) { return from[axis] == 1 ? 0 : i; };
  std::vector<long double> spread;
  for (std::size_t b = 0; b < to[0]; ++b)
    for (std::size_t h = 0; h < to[1]; ++h)
      for (std::size_t i = 0; i < to[2]; ++i)
        for (std::size_t j = 0; j < to[3]; ++j)
          spread.push_back(
              values[((at(0, b) * from[1] + at(1, h)) * from[2] + at(2, i)) * from[3] + at(3, j)]);
  return spread;
}

Numbers split(const Numbers& packed, std::size_t B, std::size_t N, std::size_t heads,
              std::size_t D) {
  Numbers result{{}, packed.error};
  for (std::size_t b = 0; b < B; ++b)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t n = 0; n < N; ++n)
        for (std::size_t d = 0; d < D; ++d)
          result.values.push_back(packed.values[((b * N + n) * heads + h) * D + d]);
  return result;
}

Numbers join(const Numbers& heads_apart, std::size_t B, std::size_t N, std::size_t heads,
             std::size_t D) {
  return split(heads_apart, B, heads, N, D);  // the same transposition
}

}  // namespace oracle
