#include "attn/core/reductions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "attn/base/error.h"

namespace attn {
namespace {

/// x (outer, middle, inner) summed over the middle and divided by `by`; `shape` is that of the
/// other axes.
Tensor sum_over(const Tensor& x, std::size_t outer, std::size_t middle, const Shape& shape,
                double by) {
  Tensor sums(DType::f64, shape);
  const auto to = sums.mutable_data<double>();
  const std::size_t inner = outer == 0 ? 0 : to.size() / outer;
  visit(x.dtype(), [&]<class T>(Type<T>) {
    const auto from = x.data<T>();
    for (std::size_t o = 0; o < outer; ++o)
      for (std::size_t m = 0; m < middle; ++m)
        for (std::size_t i = 0; i < inner; ++i)
          to[o * inner + i] += static_cast<double>(from[(o * middle + m) * inner + i]) / by;
  });
  return cast(sums, x.dtype());
}

}  // namespace

Tensor mean_over_heads(const Tensor& weights) {
  const Shape& s = weights.shape();
  return sum_over(weights, s[0], s[1], {s[0], s[2], s[3]}, static_cast<double>(s[1]));
}

namespace {

/// Each member adds its rows to the sums of the one before it. While a member adds the rows of one
/// head, the next adds those of the head before.
Tensor sum_in_turns(const Tensor& weights, Team& team) {
  const Shape& s = weights.shape();
  const std::size_t L = s[2], S = s[3], last = team.size() - 1;
  Tensor sums(DType::f64, {s[0], s[1], S});
  const auto all = sums.mutable_data<double>();
  for (std::size_t head = 0; head < s[0] * s[1]; ++head) {
    const auto part = all.subspan(head * S, S);
    if (team.rank() > 0) team.receive(team.rank() - 1, std::as_writable_bytes(part));
    visit(weights.dtype(), [&]<class T>(Type<T>) {
      const auto rows = weights.data<T>().subspan(head * L * S, L * S);
      for (std::size_t l = 0; l < L; ++l)
        for (std::size_t j = 0; j < S; ++j) part[j] += static_cast<double>(rows[l * S + j]);
    });
    if (team.rank() < last) team.send(team.rank() + 1, std::as_bytes(part));
  }
  if (team.rank() == last) team.send(0, std::as_bytes(all));
  if (team.rank() == 0) team.receive(last, std::as_writable_bytes(all));
  return cast(sums, weights.dtype());
}

}  // namespace

Tensor sum_over_queries(const Tensor& weights, Team* team) {
  if (team != nullptr && team->size() > 1) return sum_in_turns(weights, *team);
  const Shape& s = weights.shape();
  return sum_over(weights, s[0] * s[1], s[2], {s[0], s[1], s[3]}, 1);
}

RowQuery RowQueries::of(std::size_t row) const {
  const std::size_t count = in_.rows.size(), b = row / count / in_.H;
  RowQuery query{.place = places_.of(b, row % count), .keys = places_.keys()};
  if (in_.token_ids) {
    const std::size_t from = in_.token_ids->shape()[0] == 1 ? 0 : b * query.keys;
    query.token_ids = in_.token_ids->data<std::int64_t>().data() + from;
  }
  return query;
}

namespace {

/// The largest element; NaN if there is one, -inf for an empty row.
template <class T>
T row_max(const T* row, std::size_t count) {
  T max = -std::numeric_limits<T>::infinity();
  bool has_nan = false;
  for (std::size_t j = 0; j < count; ++j) {
    has_nan |= row[j] != row[j];
    max = row[j] > max ? row[j] : max;
  }
  return has_nan ? std::numeric_limits<T>::quiet_NaN() : max;
}

template <class T>
double weight_sum(const T* weights, std::size_t count) {
  double sum = 0;
  for (std::size_t j = 0; j < count; ++j) sum += static_cast<double>(weights[j]);
  return sum;
}

/// -sum(w log w), with 0 log 0 = 0. For a softmax this equals logsumexp minus the expected visible
/// score, because -log w = logsumexp - score; computed from the weights, no large numbers cancel. 0
/// if all weights are 0.
template <class T>
double entropy(const T* weights, std::size_t count) {
  double sum = 0;
  for (std::size_t j = 0; j < count; ++j)
    if (const auto w = static_cast<double>(weights[j]); w != 0) sum -= w * std::log(w);
  return sum;
}

/// 0 if all weights are 0.
template <class T>
double effective_keys(const T* weights, std::size_t count) {
  const bool is_empty = std::all_of(weights, weights + count, [](T w) { return w == 0; });
  return is_empty ? 0 : std::exp(entropy(weights, count));
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
double keys_95(const T* weights, std::size_t count) {
  constexpr double kShare = 0.95 - 1e-6;  // so that rounding does not decide about 0.95 itself
  std::vector<double> positive;
  positive.reserve(count);
  for (std::size_t j = 0; j < count; ++j)
    if (weights[j] > 0) positive.push_back(static_cast<double>(weights[j]));
  double missing = kShare * weight_sum(weights, count);
  if (std::isnan(missing)) return missing;
  std::size_t found = 0;
  for (std::span<double> rest = positive; missing > 0 && !rest.empty();) {
    double pivot = 0;
    const auto [above, below] = divide(rest, pivot);
    const double of_above = weight_sum(rest.data(), above);
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

/// sum(w |own - j|); appended keys have distance 0, as with ALiBi.
template <class T>
double distance(const T* weights, const RowQuery& query) {
  double sum = 0;
  if (query.place.first < 0) return sum;
  for (std::size_t j = 0; j < query.keys; ++j)
    sum += static_cast<double>(weights[j]) *
           std::abs(static_cast<double>(query.place.own - static_cast<std::int64_t>(j)));
  return sum;
}

template <class T>
double weight_at(const T* weights, std::int64_t key, const RowQuery& query) {
  const bool exists = key >= 0 && key < static_cast<std::int64_t>(query.keys);
  return exists ? static_cast<double>(weights[key]) : 0;
}

/// The weights of the keys j + `shift` whose token j is the query's own, first <= j < own.
template <class T>
double weight_of_equal_tokens(const T* weights, const RowQuery& query, std::int64_t shift) {
  double sum = 0;
  if (query.place.first < 0 || query.place.own >= static_cast<std::int64_t>(query.keys)) return sum;
  for (std::int64_t j = query.place.first; j < query.place.own; ++j)
    if (query.token_ids[j] == query.token_ids[query.place.own])
      sum += static_cast<double>(weights[j + shift]);
  return sum;
}

template <class T>
double reduced(Output output, const T* row, std::size_t count, const RowQuery& query) {
  switch (output) {
    case Output::weight_sum:
      return weight_sum(row, count);
    case Output::entropy:
      return entropy(row, count);
    case Output::effective_keys:
      return effective_keys(row, count);
    case Output::keys_95:
      return keys_95(row, count);
    case Output::distance:
      return distance(row, query);
    case Output::first_key_weight:
      return weight_at(row, query.place.first, query);
    case Output::previous_token_weight:
      return query.place.own > query.place.first ? weight_at(row, query.place.own - 1, query) : 0;
    case Output::duplicate_token_weight:
      return weight_of_equal_tokens(row, query, 0);
    case Output::induction_weight:
      return weight_of_equal_tokens(row, query, 1);
    default:
      throw Error(ErrorKind::internal, "not a reduction of rows");
  }
}

}  // namespace

template <class T>
T reduce_row(Output output, const T* row, std::size_t count, const RowQuery& query) {
  if (output == Output::row_max) return row_max(row, count);
  return static_cast<T>(reduced(output, row, count, query));
}
template float reduce_row(Output, const float*, std::size_t, const RowQuery&);
template double reduce_row(Output, const double*, std::size_t, const RowQuery&);

Tensor reduce_rows(Output output, const Tensor& matrix, const RowQueries& queries) {
  const Shape& s = matrix.shape();
  Tensor reduced(matrix.dtype(), {s[0], s[1], s[2]});
  visit(matrix.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      const T* const rows = matrix.data<T>().data();
      const auto results = reduced.mutable_data<T>();
      for (std::size_t i = 0; i < results.size(); ++i)
        results[i] = reduce_row(output, rows + i * s[3], s[3], queries.of(i));
    }
  });
  return reduced;
}

}  // namespace attn
