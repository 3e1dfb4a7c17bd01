#include "attn/diagnose/fitted_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>

#include "attn/diagnose/changes.h"
#include "attn/diagnose/hidden_keys.h"

namespace attn {
namespace {

/// Whether the smaller ones of a and b are small, in sum, in comparison with those of before.
bool are_small(const std::vector<double>& a, const std::vector<double>& b,
               const std::vector<double>& before) {
  double after = 0;
  for (std::size_t h = 0; h < a.size(); ++h) after += std::min(a[h], b[h]);
  return 16 * after <= std::accumulate(before.begin(), before.end(), 0.0);
}

/// The numbers to try for a fitted one: with two significant digits, with three, and as it is.
std::array<double, 3> rounded_and_exact(double number) {
  const double digit = std::pow(10, std::floor(std::log10(std::abs(number))) - 1);
  return {std::round(number / digit) * digit, std::round(number / digit * 10) / 10 * digit, number};
}

}  // namespace

void FittedNumbers::test() {
  constexpr const char* kPart = "numbers that the result suggests";
  if (search_.is_over())
    search_.found().untested.emplace_back(kPart);
  else
    search_.attempt(kPart, [&] { test_each(); });
}

void FittedNumbers::test_each() {
  test_scores();
  test_masks();
  test_factors();
  test_softcap();
}

void FittedNumbers::test_factors() {
  if (!test_factor(true) && sample_.in().H > 1) test_factor(false);
}

bool FittedNumbers::test_factor(bool is_common) {
  if (sample_.in().options.score != Score::dot) return false;
  const auto factors = fitted_factors(
      [&](Variant& variant, const std::vector<double>& of_heads) {
        with_factors(variant, sample_.in(), of_heads);
      },
      is_common, squares_of_grid_);
  return factors && search_.test_fit(is_common ? "scale.factor" : "scale.factor_of_each_head",
                                     [&](Variant& variant) {
                                       return with_factors(variant, sample_.in(), *factors);
                                     });
}

void FittedNumbers::test_softcap() {
  const double softcap = sample_.in().options.softcap;
  if (softcap == 0) return;
  std::vector<std::vector<double>> squares_of_grid;
  const auto factors = fitted_factors(
      [&](Variant& variant, const std::vector<double>& each) {
        with_other_softcap(variant, sample_.in(), softcap * each[0]);
      },
      true, squares_of_grid);
  if (!factors) return;
  for (const double tried : rounded_and_exact(softcap * factors->front()))
    if (search_.test_fit("softcap.other", [&](Variant& variant) {
          return with_other_softcap(variant, sample_.in(), tried);
        }))
      return;
}

void FittedNumbers::test_scores() {
  constexpr std::pair<const char*, RowChange> kChanges[] = {
      {"mask.set_number", RowChange::hidden_set},
      {"mask.added_number", RowChange::hidden_added},
      {"mask.set_number_before_bias", RowChange::hidden_set_biased}};
  if (sample_.output() != Output::context && sample_.output() != Output::head_context) return;
  for (const auto& [id, change] : kChanges) {
    Variant applies = sample_.base();
    if (!with_hidden_scores(applies, sample_.in(), change, 0)) continue;
    const ComparedPart& part = sample_.parts().front();
    const auto number = fitted_score(sample_.base(), change, part.queries, part.result);
    if (!number) continue;
    for (const double tried : rounded_and_exact(*number))
      if (search_.test_fit(id, [&, change = change](Variant& variant) {
            return with_hidden_scores(variant, sample_.in(), change, tried);
          }))
        break;
  }
}

std::vector<std::size_t> FittedNumbers::sorted_queries_that_differ() {
  std::set<std::size_t> queries;
  if (has_other_change_) {
    for (ComparedPart& part : sample_.parts()) {
      const auto found = sample_.evaluated(sample_.base(), part, true);
      if (!found) return {};
      const Fit fitted =
          sample_.fit_of(part, found->values, found->bounds ? &*found->bounds : nullptr);
      const Shape& shape = part.result.shape();
      for (std::size_t i = 0; i < fitted.is_outside.size(); ++i)
        if (fitted.is_outside[i]) queries.insert(part.queries[i / shape[3] % shape[2]]);
    }
    return {queries.begin(), queries.end()};
  }
  const std::vector<double> errors = row_errors(sample_.evidence());
  if (errors.size() != sample_.given_in().rows.size()) return {};
  for (std::size_t r = 0; r < errors.size(); ++r)
    if (errors[r] > 1) queries.insert(sample_.given_in().rows[r]);
  return {queries.begin(), queries.end()};
}

void FittedNumbers::test_masks() {
  constexpr std::int64_t kMostKeys = 256;
  const auto queries = sorted_queries_that_differ();
  const auto offset = common_offset(sample_.in());
  if (!offset || queries.empty()) return;
  const auto test = [&](const char* id, std::int64_t from, std::int64_t to,
                        Found (*change)(Variant&, const Inputs&, std::int64_t)) {
    const auto number = fitted_number(from, to, change);
    return number && search_.test_fit(id, [&](Variant& variant) {
      return change(variant, sample_.in(), *number);
    });
  };
  // The first row that differs has one key more, and the last row that lacks keys of the prefix
  // two keys less, but keys with small weights do not show in low precisions.
  const std::int64_t left = *offset + static_cast<std::int64_t>(queries.front()) - 1;
  test("window.added", left, left / 4, with_added_window);
  // The first row that differs tells the smaller one of two windows only.
  const std::int64_t given = sample_.in().options.window.left,
                     keys = static_cast<std::int64_t>(sample_.in().P + sample_.in().N);
  if (!test("window.other", left, left / 4, with_other_window) && given >= 0)
    test("window.other", given + 1, std::min(8 * (given + 1), keys), with_other_window);
  if (const std::int64_t right = sample_.in().options.window.right; right >= 0)
    if (!test("window.other_right", right + 1, std::min(8 * (right + 1), keys), with_other_right))
      test("window.other_right", right - 1, right / 8, with_other_right);
  test("window.first_keys", 1, kMostKeys, with_first_keys);
  const std::int64_t prefix = *offset + static_cast<std::int64_t>(queries.back()) + 2;
  test("causal.prefix", prefix, std::min(2 * prefix, keys), with_prefix);
}

std::optional<std::int64_t> FittedNumbers::fitted_number(std::int64_t from, std::int64_t to,
                                                         Found (*change)(Variant&, const Inputs&,
                                                                         std::int64_t)) {
  std::optional<std::int64_t> best;
  double least = HUGE_VAL;
  const std::int64_t low = std::min(from, to), high = std::max(from, to), sign = from < to ? 1 : -1;
  const auto consider = [&](std::int64_t number) {
    Variant variant = sample_.base();
    if (number < low || number > high) return true;
    const auto claim = change(variant, sample_.in(), number);
    if (!claim || claim->too_large) return false;
    const auto values = sample_.evaluated(variant, sample_.parts().front(), false);
    if (!values) return false;
    const double squares = sample_.fit_of(sample_.parts().front(), values->values, nullptr).squares;
    if (squares < least) least = squares, best = number;
    return true;
  };
  std::int64_t step = 1;
  for (std::int64_t distance = 0; distance <= high - low; distance += step) {
    if (search_.is_over() || !consider(from + sign * distance)) return std::nullopt;
    if (distance >= 8 * step) step *= 2;
  }
  if (!best) return std::nullopt;
  for (step = std::max<std::int64_t>(1, std::abs(from - *best) / 8); step > 0; step /= 2)
    for (const std::int64_t number : {*best - step, *best + step}) consider(number);
  return best;
}

std::vector<double> FittedNumbers::squares_with(const Change& change,
                                                const std::vector<double>& factors) {
  ComparedPart& part = sample_.parts().front();
  Variant variant = sample_.base();
  change(variant, factors);
  const auto evaluated_part = sample_.evaluated(variant, part, false);
  if (!evaluated_part) return std::vector<double>(sample_.in().H, HUGE_VAL);
  std::vector<double> squares(sample_.in().H);
  const auto a = part.result.data<double>(), b = evaluated_part->values.data<double>();
  const std::size_t of_head = part.result.shape()[2] * part.result.shape()[3];
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::isfinite(a[i]) && std::isfinite(b[i]))
      squares[i / of_head % sample_.in().H] += (a[i] - b[i]) * (a[i] - b[i]);
  return squares;
}

std::optional<std::vector<double>> FittedNumbers::fitted_factors(
    const Change& change, bool is_common, std::vector<std::vector<double>>& squares_of_grid) {
  if (sample_.parts().front().result.shape()[1] != sample_.in().H && !is_common)
    return std::nullopt;
  const auto summed = [&](std::vector<double> squares) {
    const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
    if (is_common) std::fill(squares.begin(), squares.end(), sum);
    return squares;
  };
  const auto squares_at = [&](const std::vector<double>& factors) {
    return summed(squares_with(change, factors));
  };
  constexpr int kSteps = 12, kSections = 48, kRoughSections = 20;
  constexpr double kGolden = 0.6180339887498949;
  const double step = std::numbers::sqrt2;
  for (int k = -kSteps; k <= kSteps && squares_of_grid.size() <= 2 * kSteps; ++k) {
    if (search_.is_over()) return std::nullopt;
    squares_of_grid.push_back(
        squares_with(change, std::vector<double>(sample_.in().H, std::pow(step, k))));
  }
  const std::vector<double> before = summed(squares_of_grid[kSteps]);
  std::vector<double> best(sample_.in().H, 1.0), least(sample_.in().H, HUGE_VAL);
  for (int k = -kSteps; k <= kSteps; ++k) {
    const std::vector<double> squares = summed(squares_of_grid[kSteps + k]);
    for (std::size_t h = 0; h < sample_.in().H; ++h)
      if (squares[h] < least[h]) least[h] = squares[h], best[h] = std::pow(step, k);
  }
  // Only a factor near 1 may be far from all of the grid, in comparison.
  for (std::size_t h = 0; h < sample_.in().H; ++h)
    if (std::abs(std::log2(best[h])) > 0.75 && 2 * least[h] > before[h]) return std::nullopt;
  std::vector<double> low(sample_.in().H), high(sample_.in().H), left(sample_.in().H),
      right(sample_.in().H);
  for (std::size_t h = 0; h < sample_.in().H; ++h) {
    low[h] = best[h] / step, high[h] = best[h] * step;
    left[h] = high[h] - kGolden * (high[h] - low[h]);
    right[h] = low[h] + kGolden * (high[h] - low[h]);
  }
  std::vector<double> at_left = squares_at(left), at_right = squares_at(right);
  for (int section = 0; section < kSections; ++section) {
    std::vector<double> next(sample_.in().H);
    std::vector<bool> goes_left(sample_.in().H);
    for (std::size_t h = 0; h < sample_.in().H; ++h) {
      goes_left[h] = at_left[h] < at_right[h];
      if (goes_left[h]) {
        high[h] = right[h], right[h] = left[h], at_right[h] = at_left[h];
        left[h] = next[h] = high[h] - kGolden * (high[h] - low[h]);
      } else {
        low[h] = left[h], left[h] = right[h], at_left[h] = at_right[h];
        right[h] = next[h] = low[h] + kGolden * (high[h] - low[h]);
      }
    }
    const std::vector<double> squares = squares_at(next);
    for (std::size_t h = 0; h < sample_.in().H; ++h)
      (goes_left[h] ? at_left : at_right)[h] = squares[h];
    if (section == kRoughSections && !are_small(at_left, at_right, before)) return std::nullopt;
  }
  if (!are_small(at_left, at_right, before)) return std::nullopt;
  for (std::size_t h = 0; h < sample_.in().H; ++h) best[h] = (low[h] + high[h]) / 2;
  return best;
}

}  // namespace attn
