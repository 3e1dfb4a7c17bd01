#include "attn/diagnose/pattern.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/core/mask.h"

namespace attn {
namespace {

/// The wrong elements along each axis, and the errors of each row.
struct Wrong {
  std::vector<std::size_t> items, heads, rows, columns;  ///< numbers of wrong elements
  std::vector<double> row_squares;
  double least_factor = HUGE_VAL, largest_factor = -HUGE_VAL;  ///< of the rows
  bool has_factors = true;                                     ///< each row is a multiple
  bool are_zero = true, are_nan = true;                        ///< all wrong elements
};

Wrong count(const Evidence& evidence) {
  const Matrices& view = evidence.view;
  Wrong wrong;
  wrong.items.resize(view.B), wrong.heads.resize(view.H), wrong.rows.resize(view.R);
  wrong.columns.resize(view.C), wrong.row_squares.resize(view.R);
  const auto reference = evidence.reference.data<double>();
  visit(evidence.result.dtype(), [&]<class T>(Type<T>) {
    const auto result = evidence.result.data<T>();
    for (std::size_t b = 0; b < view.B; ++b)
      for (std::size_t h = 0; h < view.H; ++h)
        for (std::size_t r = 0; r < view.R; ++r) {
          double ab = 0, bb = 0;
          for (std::size_t c = 0; c < view.C; ++c) {
            const std::size_t at = view.at(b, h, r, c);
            const auto x = static_cast<double>(result[at]);
            const double y = reference[at];
            const double bound = evidence.bounds != nullptr
                                     ? evidence.bounds->data<double>()[at]
                                     : bound_of(evidence.tolerance, y, evidence.result.dtype());
            if (std::isfinite(x) && std::isfinite(y)) {
              wrong.row_squares[r] += (x - y) * (x - y);
              ab += x * y, bb += y * y;
            } else {
              wrong.has_factors = false;
            }
            if (is_within(x, y, bound)) continue;
            wrong.are_zero &= x == 0, wrong.are_nan &= std::isnan(x);
            ++wrong.items[b], ++wrong.heads[h], ++wrong.rows[r], ++wrong.columns[c];
          }
          if (!wrong.has_factors || bb == 0) continue;
          const double factor = ab / bb;
          wrong.least_factor = std::min(wrong.least_factor, factor);
          wrong.largest_factor = std::max(wrong.largest_factor, factor);
          for (std::size_t c = 0; c < view.C && wrong.has_factors; ++c) {
            const std::size_t at = view.at(b, h, r, c);
            const double y = factor * reference[at];
            const double bound = evidence.bounds != nullptr
                                     ? evidence.bounds->data<double>()[at]
                                     : bound_of(evidence.tolerance, y, evidence.result.dtype());
            wrong.has_factors = is_within(static_cast<double>(result[at]), y,
                                          2 * bound * std::max(1.0, std::abs(factor)));
          }
        }
  });
  return wrong;
}

std::vector<std::size_t> nonzero(const std::vector<std::size_t>& counts) {
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) which.push_back(i);
  return which;
}

/// "2nd", "16th", "111th".
std::string ordinal(std::size_t n) {
  const bool is_teen = n / 10 % 10 == 1;
  const char* const suffix = is_teen       ? "th"
                             : n % 10 == 1 ? "st"
                             : n % 10 == 2 ? "nd"
                             : n % 10 == 3 ? "rd"
                                           : "th";
  return std::to_string(n) + suffix;
}

/// "heads 1, 3 of 8"; "" if all are wrong, or there is only one.
std::string some_of(const std::string& name, const std::vector<std::size_t>& counts) {
  const std::vector<std::size_t> which = nonzero(counts);
  if (which.empty() || which.size() == counts.size()) return "";
  return name + (which.size() == 1 ? " " : "s ") + ranges_text(which) + " of " +
         std::to_string(counts.size());
}

/// The number of keys that each row sees, in the first item and head.
std::vector<std::size_t> visible_counts(const Inputs& in) {
  const Tensor visible = visible_keys(in);
  const std::size_t S = visible.shape()[3], R = visible.shape()[2];
  std::vector<std::size_t> counts(R);
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t j = 0; j < S; ++j) counts[r] += visible.data<bool>()[r * S + j] ? 1 : 0;
  return counts;
}

/// "rows with fewer than 4 visible keys", if these are the wrong ones.
std::string by_visible_keys(const std::vector<std::size_t>& wrong, const Inputs& in) {
  constexpr std::size_t kMostScores = std::size_t{1} << 24;
  if (in.rows.size() != wrong.size() || in.rows.size() * in.S > kMostScores ||
      in.B * in.H * in.rows.size() * in.S > 8 * kMostScores)
    return "";
  const std::vector<std::size_t> keys = visible_counts(in);
  std::size_t most_wrong = 0, least_wrong = SIZE_MAX, most_right = 0, least_right = SIZE_MAX;
  for (std::size_t r = 0; r < wrong.size(); ++r) {
    std::size_t& most = wrong[r] > 0 ? most_wrong : most_right;
    std::size_t& least = wrong[r] > 0 ? least_wrong : least_right;
    most = std::max(most, keys[r]), least = std::min(least, keys[r]);
  }
  if (least_right == SIZE_MAX || least_wrong == SIZE_MAX) return "";
  if (most_wrong == 0) return "rows without visible keys";
  if (most_wrong < least_right)
    return "rows with fewer than " + std::to_string(least_right) + " visible keys";
  if (least_wrong > most_right)
    return "rows with more than " + std::to_string(most_right) +
           (most_right == 1 ? " visible key" : " visible keys");
  return "";
}

/// Whether the errors of each quarter of the rows are larger than those of the one before.
bool grows(const std::vector<double>& squares) {
  const std::size_t quarter = squares.size() / 4;
  if (quarter < 4) return false;
  double before = -1, first = 0, sum = 0;
  for (std::size_t q = 0; q < 4; ++q) {
    sum = 0;
    for (std::size_t i = 0; i < quarter; ++i) sum += squares[q * quarter + i];
    if (sum <= before) return false;
    if (q == 0) first = sum;
    before = sum;
  }
  return sum > 4 * first;
}

}  // namespace

std::string ranges_text(const std::vector<std::size_t>& numbers) {
  if (numbers.size() > 2) {
    const std::size_t step = numbers[1] - numbers[0];
    bool is_regular = step > 1;
    for (std::size_t i = 2; i < numbers.size(); ++i)
      is_regular &= numbers[i] - numbers[i - 1] == step;
    if (is_regular)
      return "every " + ordinal(step) + " from " + std::to_string(numbers[0]) + " to " +
             std::to_string(numbers.back());
  }
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    std::string range = std::to_string(numbers[i]);
    if (end > i + 1) range += (end > i + 2 ? " to " : ", ") + std::to_string(numbers[end - 1]);
    ranges.push_back(std::move(range));
    i = end;
  }
  constexpr std::size_t kMostRanges = 6;
  if (ranges.size() > kMostRanges)
    return std::to_string(numbers.front()) + ", ..., " + std::to_string(numbers.back()) + " (" +
           std::to_string(numbers.size()) + " in all)";
  return join(ranges, ", ");
}

std::vector<std::string> pattern_of(const Evidence& evidence, const Inputs* in) {
  const Wrong wrong = count(evidence);
  std::vector<std::string> lines;
  const auto add = [&](const std::string& line) {
    if (!line.empty()) lines.push_back(line);
  };
  add(some_of("batch item", wrong.items));
  add(some_of("head", wrong.heads));
  const std::string by_keys = in != nullptr ? by_visible_keys(wrong.rows, *in) : "";
  add(some_of("row", wrong.rows) + (by_keys.empty() ? "" : ": " + by_keys));
  add(some_of("column", wrong.columns));
  if (grows(wrong.row_squares)) add("all over, growing with the position of the row");
  if (wrong.are_zero) add("the wrong elements are all 0");
  if (wrong.are_nan) add("the wrong elements are all NaN");
  if (wrong.has_factors && !wrong.are_zero && wrong.largest_factor - wrong.least_factor > 1e-3)
    add("the rows are those of the job times factors from " + six_digits(wrong.least_factor) +
        " to " + six_digits(wrong.largest_factor));
  return lines;
}

}  // namespace attn
