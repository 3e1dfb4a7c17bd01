#include "attn/diagnose/pattern.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/problem/mask.h"

namespace attn {
namespace {

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
  return ranges_text(name, which) + " of " + std::to_string(counts.size());
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

/// Whether the errors of each quarter of the rows are larger than those of the one before, and each
/// has wrong rows.
bool grows(const std::vector<double>& squares, const std::vector<std::size_t>& wrong) {
  const std::size_t quarter = squares.size() / 4;
  if (quarter < 4) return false;
  double before = -1, first = 0, sum = 0;
  for (std::size_t q = 0; q < 4; ++q) {
    sum = 0;
    std::size_t count = 0;
    for (std::size_t i = q * quarter; i < (q + 1) * quarter; ++i)
      sum += squares[i], count += wrong[i];
    if (sum <= before || count == 0) return false;
    if (q == 0) first = sum;
    before = sum;
  }
  return sum > 4 * first;
}

}  // namespace

std::string ranges_text(const std::string& name, const std::vector<std::size_t>& numbers) {
  if (numbers.size() > 2) {
    const std::size_t step = numbers[1] - numbers[0];
    bool is_regular = step > 1;
    for (std::size_t i = 2; i < numbers.size(); ++i)
      is_regular &= numbers[i] - numbers[i - 1] == step;
    if (is_regular)
      return "every " + ordinal(step) + " " + name + " from " + std::to_string(numbers[0]) +
             " to " + std::to_string(numbers.back());
  }
  const std::string start = name + (numbers.size() == 1 ? " " : "s ");
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
    return start + std::to_string(numbers.front()) + ", ..., " + std::to_string(numbers.back()) +
           " (" + std::to_string(numbers.size()) + " in all)";
  return start + join(ranges, ", ");
}

Pattern::Pattern(const Matrices& view)
    : items_(view.B), heads_(view.H), rows_(view.R), columns_(view.C), row_squares_(view.R) {}

void Pattern::add(const Evidence& evidence, const HeadSample* heads) {
  const Matrices& view = evidence.view;
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
            if (std::isfinite(x) && std::isfinite(y)) {
              row_squares_[r] += (x - y) * (x - y);
              ab += x * y, bb += y * y;
            } else {
              has_factors_ = false;
            }
            if (is_within(x, y, evidence.bound_at(at))) continue;
            has_zeros_ |= x == 0, has_nan_ |= std::isnan(x);
            are_blank_ &= x == 0 || std::isnan(x);
            ++items_[heads ? heads->items[b] : b], ++heads_[heads ? heads->heads[h] : h];
            ++rows_[r], ++columns_[c];
          }
          if (!has_factors_ || bb == 0) continue;
          const double factor = ab / bb;
          least_factor_ = std::min(least_factor_, factor);
          largest_factor_ = std::max(largest_factor_, factor);
          for (std::size_t c = 0; c < view.C && has_factors_; ++c) {
            const std::size_t at = view.at(b, h, r, c);
            const double y = factor * reference[at];
            has_factors_ = is_within(static_cast<double>(result[at]), y,
                                     2 * evidence.bound_at(at) * std::max(1.0, std::abs(factor)));
          }
        }
  });
}

std::vector<std::string> Pattern::lines(const Inputs* in) const {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& line) {
    if (!line.empty()) lines.push_back(line);
  };
  add(some_of("batch item", items_));
  add(some_of("head", heads_));
  const std::string by_keys = in != nullptr ? by_visible_keys(rows_, *in) : "";
  add(some_of("row", rows_) + (by_keys.empty() ? "" : ": " + by_keys));
  add(some_of("column", columns_));
  if (grows(row_squares_, rows_)) add("all over, growing with the position of the row");
  if (are_blank_)
    add(std::string(kAllWrong) + (has_zeros_ ? "0" : "") + (has_zeros_ && has_nan_ ? " or " : "") +
        (has_nan_ ? "NaN" : ""));
  if (has_factors_ && columns_.size() > 1 && !are_blank_ && largest_factor_ - least_factor_ > 1e-3)
    add("the rows are those of the job times factors from " + six_digits(least_factor_) + " to " +
        six_digits(largest_factor_));
  return lines;
}

}  // namespace attn
