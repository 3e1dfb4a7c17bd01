#include "attn/diagnose/arrangements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "attn/base/number_text.h"
#include "attn/base/text.h"

namespace attn {
namespace {

constexpr std::size_t kRows = 24;

/// The place of an element: item, head, row, column.
using Place = std::array<std::size_t, 4>;

class Matcher {
 public:
  explicit Matcher(const Evidence& evidence)
      : evidence_(evidence), view_(evidence.view), result_(evidence.result.size()) {
    const Tensor exact = cast(evidence.result, DType::f64);
    std::copy(exact.data<double>().begin(), exact.data<double>().end(), result_.begin());
    rows_ = sampled_rows(row_errors(evidence), kRows, {});
  }

  /// How far the job's elements at from(place), times factor(place), explain the sampled rows.
  Fit fit_of(const std::function<Place(const Place&)>& from,
             const std::function<double(const Place&)>& factor) const {
    Fit total;
    for (std::size_t b = 0; b < view_.B; ++b)
      for (std::size_t h = 0; h < view_.H; ++h)
        for (const std::size_t r : rows_)
          for (std::size_t c = 0; c < view_.C; ++c) {
            const Place place = {b, h, r, c};
            add(place, from(place), factor(place), total);
          }
    return total;
  }
  Fit fit_of(const std::function<Place(const Place&)>& from) const {
    return fit_of(from, [](const Place&) { return 1.0; });
  }

  /// For each of `count` parts, the other part of the job with its elements; nullopt if one has
  /// none, if all have their own, or if the search takes too long.
  std::optional<std::vector<std::size_t>> matched(std::size_t axis, std::size_t count) const {
    constexpr std::size_t kMostCompared = std::size_t{1} << 27;  // elements: some seconds
    std::vector<std::size_t> sources;
    bool moved = false;
    std::size_t compared = 0;
    for (std::size_t part = 0; part < count; ++part) {
      std::optional<std::size_t> source;
      const auto try_part = [&](std::size_t other) {
        if (!source && compared < kMostCompared && is_part(axis, part, other, compared))
          source = other;
      };
      try_part(part);
      if (!sources.empty()) {  // as in results that are shifted or reversed
        try_part((sources.back() + 1) % count);
        try_part((sources.back() + count - 1) % count);
      }
      for (std::size_t k = 1; k < count && !source && compared < kMostCompared; ++k)
        try_part((part + k) % count);
      if (!source) return std::nullopt;
      moved |= *source != part;
      sources.push_back(*source);
    }
    return moved ? std::optional(sources) : std::nullopt;
  }

  /// The row of the job that row r has in all items and heads: the one with the smallest errors.
  std::optional<std::size_t> row_at(std::size_t r) const {
    std::size_t best = r;
    double least = squares_of(r, r, HUGE_VAL);
    for (std::size_t other = 0; other < view_.R; ++other)
      if (const double squares = squares_of(r, other, least); squares < least)
        least = squares, best = other;
    return is_row(r, best) ? std::optional(best) : std::nullopt;
  }

  const std::vector<std::size_t>& rows() const { return rows_; }

  /// The factor a . b / b . b of the sampled rows of a head, or of all.
  double factor_of(std::optional<std::size_t> head) const {
    double ab = 0, bb = 0;
    for (std::size_t b = 0; b < view_.B; ++b)
      for (std::size_t h = 0; h < view_.H; ++h)
        for (const std::size_t r : rows_)
          for (std::size_t c = 0; c < view_.C; ++c) {
            if (head && h != *head) continue;
            const double x = at(result_, {b, h, r, c}), y = reference({b, h, r, c});
            if (!std::isfinite(x) || !std::isfinite(y)) continue;
            ab += x * y, bb += y * y;
          }
    return bb == 0 ? 1 : ab / bb;
  }

 private:
  double at(const std::vector<double>& values, const Place& place) const {
    return values[view_.at(place[0], place[1], place[2], place[3])];
  }
  double reference(const Place& p) const {
    return evidence_.reference.data<double>()[view_.at(p[0], p[1], p[2], p[3])];
  }
  double bound(const Place& p) const {
    return evidence_.bound_at(view_.at(p[0], p[1], p[2], p[3]));
  }

  void add(const Place& place, const Place& from, double factor, Fit& total) const {
    const double a = at(result_, place), b = factor * reference(from);
    ++total.elements;
    // Storing the result rounds it, too.
    const double limit = std::abs(factor) * bound(from) * 1.5;
    total.outside += is_within(a, b, limit) ? 0 : 1;
    if (!std::isfinite(a) || !std::isfinite(b)) return;
    ++total.finite, total.squares += (a - b) * (a - b);
  }

  /// Whether a part of axis 0 or 1 has the elements of another part of the job. Adds the number of
  /// elements that it compares.
  bool is_part(std::size_t axis, std::size_t part, std::size_t other, std::size_t& compared) const {
    Fit total;
    const bool is_item = axis == 0;
    const std::size_t items = is_item ? part + 1 : view_.B, heads = is_item ? view_.H : part + 1;
    for (std::size_t b = is_item ? part : 0; b < items; ++b)
      for (std::size_t h = is_item ? 0 : part; h < heads; ++h)
        for (const std::size_t r : rows_) {
          for (std::size_t c = 0; c < view_.C; ++c) {
            const Place place = {b, h, r, c};
            Place from = place;
            from[axis] = other;
            add(place, from, 1, total);
          }
          compared += view_.C;
          if (total.elements > 32 && total.outside * 4 > total.elements) return false;
        }
    return total.explained() >= kExplained;
  }

  /// Of the errors of row r with another row of the job; at least `most` if they exceed that.
  double squares_of(std::size_t r, std::size_t other, double most) const {
    double squares = 0;
    for (std::size_t b = 0; b < view_.B; ++b)
      for (std::size_t h = 0; h < view_.H && squares < most; ++h)
        for (std::size_t c = 0; c < view_.C; ++c) {
          const double error = at(result_, {b, h, r, c}) - reference({b, h, other, c});
          if (std::isfinite(error)) squares += error * error;
        }
    return squares;
  }

  bool is_row(std::size_t r, std::size_t other) const {
    Fit total;
    for (std::size_t b = 0; b < view_.B; ++b)
      for (std::size_t h = 0; h < view_.H; ++h) {
        for (std::size_t c = 0; c < view_.C; ++c) add({b, h, r, c}, {b, h, other, c}, 1, total);
        if (total.elements > 16 && total.outside * 4 > total.elements) return false;
      }
    return total.explained() >= kExplained;
  }

  const Evidence& evidence_;
  const Matrices& view_;
  std::vector<double> result_;
  std::vector<std::size_t> rows_;
};

constexpr std::size_t kMostListed = 16;

std::string order_text(const std::vector<std::size_t>& sources) {
  if (sources.size() <= kMostListed)
    return join(sources, ", ", [](std::size_t k) { return std::to_string(k); });
  std::string text;
  constexpr std::size_t kMost = 4;
  std::size_t moved = 0;
  for (std::size_t k = 0; k < sources.size(); ++k)
    if (sources[k] != k && moved++ < kMost)
      text += (text.empty() ? "" : ", ") + std::to_string(sources[k]) + " in place of " +
              std::to_string(k);
  return text + (moved > kMost ? ", ..." : "");
}

/// "the results of heads 1, 0 in place of 0 to 1".
std::string moved_text(const std::string& name, const std::vector<std::size_t>& sources) {
  return "the results of " + name + " " + order_text(sources) +
         (sources.size() <= kMostListed ? " in place of 0 to " + std::to_string(sources.size() - 1)
                                        : "");
}

Place same_place(const Place& place) { return place; }

/// Tries arrangements of the job's elements, and keeps those that explain the result.
class ArrangementSearch {
 public:
  explicit ArrangementSearch(const Evidence& evidence)
      : matcher_(evidence), R_(evidence.view.R), C_(evidence.view.C) {
    const Excerpt* const excerpt = evidence.excerpt;
    const bool has_all_heads = excerpt == nullptr || excerpt->heads == nullptr;
    has_all_rows_ = excerpt == nullptr || excerpt->heads != nullptr;
    if (has_all_heads) B_ = evidence.view.B, H_ = evidence.view.H;
  }

  std::vector<Arrangement> found() {
    try_factors();
    try_moved_heads();
    try_views();
    if (!found_.empty()) return std::move(found_);
    try_moved_columns();
    if (has_all_rows_) try_moved_rows();
    return std::move(found_);
  }

 private:
  void add(std::string id, std::string kernel, const Fit& fit) {
    if (fit.explained() >= kExplained) found_.push_back({std::move(id), std::move(kernel), fit});
  }

  void try_factors() {
    const double factor = matcher_.factor_of(std::nullopt);
    if (std::abs(factor - 1) > 1e-3 && factor != 0)
      add("values.factor", "the result multiplied by " + six_digits(factor),
          matcher_.fit_of(same_place, [&](const Place&) { return factor; }));
    if (H_ == 1 || !found_.empty()) return;
    std::vector<double> factors;
    for (std::size_t h = 0; h < H_; ++h) factors.push_back(matcher_.factor_of(h));
    const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
    if (*most - *least > 1e-3)
      add("values.factor_per_head",
          "the result of each head multiplied by a factor from " + six_digits(*least) + " to " +
              six_digits(*most),
          matcher_.fit_of(same_place, [&](const Place& p) { return factors[p[1]]; }));
  }

  void try_moved_heads() {
    if (H_ > 1)
      if (const auto heads = matcher_.matched(1, H_))
        add("heads.permuted", moved_text("heads", *heads), matcher_.fit_of([&](const Place& p) {
          return Place{p[0], (*heads)[p[1]], p[2], p[3]};
        }));
    if (B_ > 1)
      if (const auto items = matcher_.matched(0, B_))
        add("heads.batch_permuted", moved_text("batch items", *items),
            matcher_.fit_of([&](const Place& p) {
              return Place{(*items)[p[0]], p[1], p[2], p[3]};
            }));
    if (B_ == H_ && H_ > 1)
      add("heads.batch_swapped", "batch items and heads swapped",
          matcher_.fit_of([](const Place& p) {
            return Place{p[1], p[0], p[2], p[3]};
          }));
  }

  void try_views() {
    if (H_ > 1 && R_ > 1 && has_all_rows_) {
      add("output.viewed", "the result (B, H, L, Dv) read as (B, L, H, Dv)",
          matcher_.fit_of([&](const Place& p) {
            const std::size_t n = (p[2] * H_ + p[1]) * C_ + p[3];
            return Place{p[0], n / (R_ * C_), n / C_ % R_, n % C_};
          }));
      add("output.viewed_as_heads", "the result (B, L, H, Dv) read as (B, H, L, Dv)",
          matcher_.fit_of([&](const Place& p) {
            const std::size_t n = (p[1] * R_ + p[2]) * C_ + p[3];
            return Place{p[0], n / C_ % H_, n / (H_ * C_), n % C_};
          }));
    }
    if (H_ > 1 && C_ > 1) {
      add("output.columns_interleaved", "columns of the heads side by side as (Dv, H)",
          matcher_.fit_of([&](const Place& p) {
            const std::size_t j = p[1] * C_ + p[3];
            return Place{p[0], j % H_, p[2], j / H_};
          }));
      add("output.columns_split", "columns (H, Dv) read as (Dv, H)",
          matcher_.fit_of([&](const Place& p) {
            const std::size_t j = p[3] * H_ + p[1];
            return Place{p[0], j / C_, p[2], j % C_};
          }));
    }
  }

  void try_moved_columns() {
    if (C_ < 2 || C_ > 256) return;
    if (const auto columns = matcher_.matched(3, C_))
      add("output.columns_permuted", "the columns in the order " + order_text(*columns),
          matcher_.fit_of([&](const Place& p) {
            return Place{p[0], p[1], p[2], (*columns)[p[3]]};
          }));
  }

  void try_moved_rows() {
    std::vector<std::pair<std::size_t, std::size_t>> moved;
    std::vector<std::size_t> sources(R_);
    std::iota(sources.begin(), sources.end(), std::size_t{0});
    for (const std::size_t r : matcher_.rows()) {
      const auto source = matcher_.row_at(r);
      if (!source) return;
      sources[r] = *source;
      if (*source != r) moved.emplace_back(r, *source);
    }
    if (moved.empty()) return;
    std::sort(moved.begin(), moved.end());
    std::vector<std::string> examples;
    for (std::size_t k = 0; k < std::min<std::size_t>(3, moved.size()); ++k)
      examples.push_back("row " + std::to_string(moved[k].first) + " has that of row " +
                         std::to_string(moved[k].second));
    add("output.rows_moved", "the results of other queries: " + join(examples, ", "),
        matcher_.fit_of([&](const Place& p) {
          return Place{p[0], p[1], sources[p[2]], p[3]};
        }));
  }

  const Matcher matcher_;
  std::size_t B_ = 1, H_ = 1;  ///< 1 if the excerpt lacks some
  const std::size_t R_, C_;
  bool has_all_rows_;
  std::vector<Arrangement> found_;
};

}  // namespace

std::vector<Arrangement> matching_arrangements(const Evidence& evidence) {
  if (evidence.view.R == 0 || evidence.result.size() == 0) return {};
  return ArrangementSearch(evidence).found();
}

}  // namespace attn
