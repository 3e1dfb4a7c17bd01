#include "attn/stats/head_statistics.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/number_text.h"

namespace attn {
namespace {

std::span<const double> row_of_matrix(const Tensor& matrix, std::size_t row) {
  const std::size_t columns = matrix.shape()[1];
  return matrix.data<double>().subspan(row * columns, columns);
}

/// w log(w / m), 0 for w = 0.
double divergence_term(double w, double m) { return w == 0 ? 0 : w * std::log(w / m); }

double sum_of(std::span<const double> row) { return std::accumulate(row.begin(), row.end(), 0.0); }

/// The Jensen-Shannon divergence of two rows of weights, divided by their sums, which are less than
/// 1 beside sinks.
double jensen_shannon(std::span<const double> p, double of_p, std::span<const double> q,
                      double of_q) {
  double sum = 0;
  for (std::size_t j = 0; j < p.size(); ++j) {
    const double a = p[j] / of_p, b = q[j] / of_q, m = (a + b) / 2;
    sum += divergence_term(a, m) + divergence_term(b, m);
  }
  return sum / 2;
}

bool has_weight(std::span<const double> row) {
  for (const double w : row)
    if (w != 0) return true;
  return false;
}

}  // namespace

void require_no_negative(std::span<const double> weights, std::size_t query) {
  for (const double w : weights)
    if (w < 0)
      fail_data("not attention weights: query " + std::to_string(query) + " contains " +
                python_repr(w));
}

void HeadSums::add(const Numbers& numbers) {
  if (numbers[kWeightSum] == 0) return;
  ++queries_;
  for (std::size_t k = 0; k < numbers.size(); ++k) sums_[k] += numbers[k];
}

void HeadSums::add(const HeadSums& more) {
  queries_ += more.queries_;
  for (std::size_t k = 0; k < sums_.size(); ++k) sums_[k] += more.sums_[k];
}

double HeadSums::value(const RowStatistic& statistic) const {
  if (queries_ == 0) return std::numeric_limits<double>::quiet_NaN();
  const bool is_mean = statistic.summary == Summary::mean;
  return sums_[statistic_index(statistic.output)] /
         (is_mean ? static_cast<double>(queries_) : sums_[kWeightSum]);
}

StatisticSet statistics_with(bool positions, bool token_ids) {
  StatisticSet known;
  for (std::size_t k = 0; k < kRowStatistics.size(); ++k) {
    const RowStatistic& statistic = kRowStatistics[k];
    const bool needs_tokens = row_of(statistic.output).source == Input::token_ids;
    known.set(k, (statistic.summary != Summary::none || k == kWeightSum) &&
                     (positions || !statistic.by_position) && (token_ids || !needs_tokens));
  }
  return known;
}

HeadSums::Numbers numbers_of_row(std::span<const double> weights, const RowQuery& query,
                                 const StatisticSet& wanted) {
  HeadSums::Numbers numbers{};
  for (std::size_t k = 0; k < numbers.size(); ++k)
    if (wanted.test(k)) numbers[k] = kRowStatistics[k].formula(weights, query);
  return numbers;
}

HeadSums sums_of_weights(const Tensor& weights, const SequenceTokens& tokens) {
  const auto& [positions, item, token_ids] = tokens;
  const StatisticSet known = statistics_with(positions != nullptr, token_ids != nullptr);
  HeadSums sums;
  for (std::size_t i = 0; i < weights.shape()[0]; ++i) {
    const Tensor wide = cast(weights.at(i), DType::f64);
    const auto row = wide.data<double>();
    require_no_negative(row, i);
    RowQuery query{.token_ids = token_ids};
    if (positions != nullptr)
      query.position = positions->of(item, i), query.keys = positions->keys();
    sums.add(numbers_of_row(row, query, known));
  }
  return sums;
}

HeadSimilarity::HeadSimilarity(std::size_t heads) : heads_(heads), pairs_(heads * heads) {}

void HeadSimilarity::add(const Tensor& weights) {
  const std::size_t L = weights.shape()[1];
  std::vector<double> totals(heads_ * L);
  for (std::size_t a = 0; a < heads_; ++a) {
    const Tensor of_a = cast(weights.at(a), DType::f64);
    for (std::size_t i = 0; i < L; ++i) totals[a * L + i] = sum_of(row_of_matrix(of_a, i));
    for (std::size_t b = 0; b <= a; ++b) {
      const Tensor of_b = cast(weights.at(b), DType::f64);
      Pair& sums = pair(a, b);
      for (std::size_t i = 0; i < L; ++i) {
        const auto p = row_of_matrix(of_a, i), q = row_of_matrix(of_b, i);
        if (a == b) require_no_negative(p, i);
        if (!has_weight(p) || !has_weight(q)) continue;
        ++sums.queries;
        for (std::size_t j = 0; j < p.size(); ++j) sums.product += p[j] * q[j];
        if (a != b) sums.divergence += jensen_shannon(p, totals[a * L + i], q, totals[b * L + i]);
      }
    }
  }
}

double HeadSimilarity::cosine(std::size_t a, std::size_t b) const {
  const double product = a < b ? pair(b, a).product : pair(a, b).product;
  return product / std::sqrt(pair(a, a).product * pair(b, b).product);
}

double HeadSimilarity::divergence(std::size_t a, std::size_t b) const {
  const Pair& sums = a < b ? pair(b, a) : pair(a, b);
  return sums.divergence / static_cast<double>(sums.queries);
}

}  // namespace attn
