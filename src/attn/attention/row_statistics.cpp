#include "attn/attention/row_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace attn {
namespace {

/// The largest element; NaN if there is one, -inf for an empty row.
template <class T>
double row_max(std::span<const T> row, const RowQuery& = {}) {
  T max = -std::numeric_limits<T>::infinity();
  bool has_nan = false;
  for (const T score : row) {
    has_nan |= score != score;
    max = score > max ? score : max;
  }
  return has_nan ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(max);
}

template <class T>
double weight_sum(std::span<const T> weights, const RowQuery& = {}) {
  double sum = 0;
  for (const T w : weights) sum += static_cast<double>(w);
  return sum;
}

/// -sum(w log w), with 0 log 0 = 0. For a softmax this equals logsumexp minus the expected visible
/// score, because -log w = logsumexp - score; computed from the weights, no large numbers cancel. 0
/// if all weights are 0.
template <class T>
double entropy(std::span<const T> weights, const RowQuery& = {}) {
  double sum = 0;
  for (const T weight : weights)
    if (const auto w = static_cast<double>(weight); w != 0) sum -= w * std::log(w);
  return sum;
}

/// 0 if all weights are 0.
template <class T>
double effective_keys(std::span<const T> weights, const RowQuery& = {}) {
  const bool is_empty = std::all_of(weights.begin(), weights.end(), [](T w) { return w == 0; });
  return is_empty ? 0 : std::exp(entropy(weights));
}

/// Divides `weights` into those above, equal to and below the median of three of them. Returns the
/// ends of the first two parts.
std::pair<std::size_t, std::size_t> divide(std::span<double> weights, double& pivot) {
  const double a = weights.front(), b = weights[weights.size() / 2], c = weights.back();
  pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
  std::size_t above = 0, below = weights.size();
  for (std::size_t i = 0; i < below;) {
    if (weights[i] > pivot)
      std::swap(weights[above++], weights[i++]);
    else if (weights[i] < pivot)
      std::swap(weights[i], weights[--below]);
    else
      ++i;
  }
  return {above, below};
}

/// The least number of weights whose sum is at least kShare of the sum of all. Selects as
/// quickselect does, in linear time on average.
template <class T>
double keys_95(std::span<const T> weights, const RowQuery& = {}) {
  constexpr double kShare = 0.95 - 1e-6;  // so that rounding does not decide about 0.95 itself
  std::vector<double> positive;
  positive.reserve(weights.size());
  for (const T w : weights)
    if (w > 0) positive.push_back(static_cast<double>(w));
  double missing = kShare * weight_sum(weights);
  if (std::isnan(missing)) return missing;
  std::size_t found = 0;
  for (std::span<double> rest = positive; missing > 0 && !rest.empty();) {
    double pivot = 0;
    const auto [above, below] = divide(rest, pivot);
    const double of_above = weight_sum<double>(rest.first(above));
    if (of_above >= missing) {
      rest = rest.first(above);
      continue;
    }
    missing -= of_above;
    const double equal = std::min(static_cast<double>(below - above), std::ceil(missing / pivot));
    found += above + static_cast<std::size_t>(equal);
    missing -= equal * pivot;
    rest = equal < static_cast<double>(below - above) ? std::span<double>{} : rest.subspan(below);
  }
  return static_cast<double>(found);
}

/// sum(w |key - j|), with the key at the query's position; appended keys have distance 0, as with
/// ALiBi.
template <class T>
double distance(std::span<const T> weights, const RowQuery& query) {
  double sum = 0;
  if (query.position.first_key < 0) return sum;
  for (std::size_t j = 0; j < query.keys; ++j)
    sum += static_cast<double>(weights[j]) *
           std::abs(static_cast<double>(query.position.key - static_cast<std::int64_t>(j)));
  return sum;
}

template <class T>
double weight_at(std::span<const T> weights, std::int64_t key, const RowQuery& query) {
  const bool exists = key >= 0 && key < static_cast<std::int64_t>(query.keys);
  return exists ? static_cast<double>(weights[static_cast<std::size_t>(key)]) : 0;
}

/// The weights of the keys j + `shift` whose token j is the query's own, first_key <= j < key.
template <class T>
double weight_of_equal_tokens(std::span<const T> weights, const RowQuery& query,
                              std::int64_t shift) {
  double sum = 0;
  if (query.position.first_key < 0 || query.position.key >= static_cast<std::int64_t>(query.keys))
    return sum;
  for (std::int64_t j = query.position.first_key; j < query.position.key; ++j)
    if (query.token_ids[j] == query.token_ids[query.position.key])
      sum += static_cast<double>(weights[static_cast<std::size_t>(j + shift)]);
  return sum;
}

template <class T>
double first_key_weight(std::span<const T> weights, const RowQuery& query) {
  return weight_at(weights, query.position.first_key, query);
}

template <class T>
double previous_token_weight(std::span<const T> weights, const RowQuery& query) {
  return query.position.key > query.position.first_key
             ? weight_at(weights, query.position.key - 1, query)
             : 0;
}

template <class T>
double duplicate_token_weight(std::span<const T> weights, const RowQuery& query) {
  return weight_of_equal_tokens(weights, query, 0);
}

template <class T>
double induction_weight(std::span<const T> weights, const RowQuery& query) {
  return weight_of_equal_tokens(weights, query, 1);
}

}  // namespace

constexpr std::array<RowStatistic, kRowStatisticCount> kRowStatistics = {{
    {.output = Output::row_max, .formula = {row_max<float>, row_max<double>}, .operations = 1},
    {.output = Output::weight_sum, .formula = {weight_sum<float>, weight_sum<double>}},
    {.output = Output::entropy,
     .formula = {entropy<float>, entropy<double>},
     .summary = Summary::mean,
     .operations = 3,
     .page_name = "entropy",
     .page_title = "entropy",
     .in_batch_summary = true},
    {.output = Output::effective_keys,
     .formula = {effective_keys<float>, effective_keys<double>},
     .summary = Summary::mean},
    {.output = Output::keys_95,
     .formula = {keys_95<float>, keys_95<double>},
     .summary = Summary::mean},
    {.output = Output::distance,
     .formula = {distance<float>, distance<double>},
     .summary = Summary::share,
     .by_position = true,
     .page_name = "distance",
     .page_title = "mean distance"},
    {.output = Output::first_key_weight,
     .formula = {first_key_weight<float>, first_key_weight<double>},
     .summary = Summary::share,
     .by_position = true,
     .page_name = "first",
     .page_title = "weight of first key"},
    {.output = Output::previous_token_weight,
     .formula = {previous_token_weight<float>, previous_token_weight<double>},
     .summary = Summary::share,
     .by_position = true,
     .page_name = "previous",
     .page_title = "weight of previous key",
     .page_note = "query 0 counts as 0"},
    {.output = Output::duplicate_token_weight,
     .formula = {duplicate_token_weight<float>, duplicate_token_weight<double>},
     .summary = Summary::share,
     .by_position = true},
    {.output = Output::induction_weight,
     .formula = {induction_weight<float>, induction_weight<double>},
     .summary = Summary::share,
     .by_position = true},
}};

static_assert([] {
  for (const RowStatistic& statistic : kRowStatistics)
    if (!row_of(statistic.output).reduces ||
        &kRowStatistics[statistic_index(statistic.output)] != &statistic)
      return false;
  return true;
}());

}  // namespace attn
