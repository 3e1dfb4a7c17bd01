#include "attn/diagnose/evidence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace attn {

double Fit::rms() const {
  return finite == 0 ? 0 : std::sqrt(squares / static_cast<double>(finite));
}

void Fit::add(const Fit& other) {
  elements += other.elements, outside += other.outside;
  finite += other.finite, squares += other.squares;
  wrong_squares += other.wrong_squares;
}

bool is_within(double a, double b, double bound) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= bound;
}

double bound_of(const Tolerance& tolerance, double value, DType dtype) {
  const double magnitude = std::abs(value);
  const double of_tolerance = tolerance.atol + tolerance.rtol * magnitude;
  if (!tolerance.ulps) return of_tolerance;
  const double step = dtype == DType::f16    ? 0x1p-10
                      : dtype == DType::bf16 ? 0x1p-7
                      : dtype == DType::f32  ? 0x1p-23
                                             : 0x1p-52;
  return std::max(of_tolerance, *tolerance.ulps * step * magnitude);
}

double Evidence::bound_at(std::size_t element) const {
  return bound_of(bounds, element, tolerance, reference.data<double>()[element], result.dtype());
}

Fit fit(const Tensor& result, const Tensor& values, const Tensor* bounds,
        const Tolerance& tolerance, DType dtype, const std::vector<bool>& wrong) {
  Fit total;
  const auto a = result.data<double>(), b = values.data<double>();
  total.elements = a.size();
  total.is_outside.resize(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool is_outside = !is_within(a[i], b[i], bound_of(bounds, i, tolerance, b[i], dtype));
    total.is_outside[i] = is_outside;
    total.outside += is_outside ? 1 : 0;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    const double square = (a[i] - b[i]) * (a[i] - b[i]);
    ++total.finite, total.squares += square;
    if (wrong.empty() ? is_outside : wrong[i]) total.wrong_squares += square;
  }
  return total;
}

namespace {

/// Calls f(item, head, row, error relative to its bound) for each element.
template <class F>
void for_each_error(const Evidence& evidence, F f) {
  const Matrices& view = evidence.view;
  const auto b = evidence.reference.data<double>();
  visit(evidence.result.dtype(), [&]<class T>(Type<T>) {
    const auto a = evidence.result.data<T>();
    for (std::size_t item = 0; item < view.B; ++item)
      for (std::size_t h = 0; h < view.H; ++h)
        for (std::size_t r = 0; r < view.R; ++r)
          for (std::size_t c = 0; c < view.C; ++c) {
            const std::size_t at = view.at(item, h, r, c);
            const auto x = static_cast<double>(a[at]);
            const double error = std::isfinite(x) && std::isfinite(b[at])
                                     ? x == b[at] ? 0 : std::abs(x - b[at]) / evidence.bound_at(at)
                                 : is_within(x, b[at], 0) ? 0
                                                          : std::numeric_limits<double>::infinity();
            f(item, h, r, error);
          }
  });
}

}  // namespace

std::vector<double> row_errors(const Evidence& evidence) {
  std::vector<double> errors(evidence.view.R);
  for_each_error(evidence, [&](std::size_t, std::size_t, std::size_t r, double error) {
    errors[r] = std::max(errors[r], error);
  });
  return errors;
}

std::vector<double> matrix_errors(const Evidence& evidence) {
  std::vector<double> errors(evidence.view.B * evidence.view.H);
  for_each_error(evidence, [&](std::size_t item, std::size_t h, std::size_t, double error) {
    double& largest = errors[item * evidence.view.H + h];
    largest = std::max(largest, error);
  });
  return errors;
}

std::vector<std::size_t> spread(const std::vector<double>& numbers, std::size_t count) {
  const std::size_t all = numbers.size();
  std::vector<std::size_t> chosen;
  const auto choose = [&](std::size_t i) {
    if (chosen.size() < count && std::find(chosen.begin(), chosen.end(), i) == chosen.end())
      chosen.push_back(i);
  };
  const auto at = [&](auto found) { return static_cast<std::size_t>(found - numbers.begin()); };
  choose(at(std::max_element(numbers.begin(), numbers.end())));
  choose(at(std::min_element(numbers.begin(), numbers.end())));
  for (std::size_t k = 0; k < all && count > 1; ++k) choose(k * (all - 1) / (count - 1) % all);
  for (std::size_t i = 0; i < all; ++i) choose(i);
  return chosen;
}

HeadSample sampled_heads(const std::vector<double>& errors, std::size_t B, std::size_t H,
                         std::size_t G, std::size_t elements) {
  if (G == 0 || H % G != 0 || errors.size() != B * H) return {};
  constexpr std::size_t kMost = 4, kElements = std::size_t{1} << 22;
  const std::size_t most =
      std::clamp<std::size_t>(kElements / std::max<std::size_t>(1, elements), 2, kMost);
  const std::size_t of_group = H / G, items = B > 1 && G > 1 ? most / 2 : most,
                    groups = B > 1 && items > 1 ? most - 1 : most;
  if (B <= items && G <= groups) return {};
  std::vector<double> of_items(B), of_groups(G);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    double &item = of_items[i / H], &group = of_groups[i % H / of_group];
    item = std::max(item, errors[i]), group = std::max(group, errors[i]);
  }
  HeadSample sample{spread(of_items, items), {}};
  for (const std::size_t g : spread(of_groups, groups))
    for (std::size_t h = g * of_group; h < (g + 1) * of_group; ++h) sample.heads.push_back(h);
  return sample;
}

std::vector<std::size_t> sampled_rows(const std::vector<double>& errors, std::size_t count,
                                      const std::vector<std::size_t>& edges) {
  const std::size_t rows = errors.size();
  std::vector<std::size_t> by_error(rows);
  std::iota(by_error.begin(), by_error.end(), std::size_t{0});
  std::stable_sort(by_error.begin(), by_error.end(),
                   [&](std::size_t i, std::size_t j) { return errors[i] > errors[j]; });
  std::vector<std::size_t> chosen;
  std::set<std::size_t> seen;
  const auto choose = [&](std::size_t row) {
    if (row < rows && chosen.size() < count && seen.insert(row).second) chosen.push_back(row);
  };
  std::uint64_t state = 0x9e3779b97f4a7c15;
  const auto at_random = [&] {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<std::size_t>(state >> 33) % rows;
  };
  if (rows == 0) return {};
  count = std::min(count, rows);
  for (std::size_t k = 0; k < 4; ++k) choose(by_error[std::min(k, rows - 1)]);
  for (std::size_t k = 0; k < 3; ++k) choose(at_random());
  choose(0), choose(rows - 1), choose(by_error.back());
  for (std::size_t k = 0; k < 4; ++k) choose(k), choose(rows - 1 - k);
  for (const std::size_t edge : edges)
    for (const std::size_t row : {edge, edge + 1, edge - 1}) choose(row);
  for (std::size_t k = 0; k < 32; ++k)
    choose(by_error[std::min(k, rows - 1)]), choose(by_error[rows - 1 - std::min(k, rows - 1)]);
  for (const std::size_t step : {16, 64, 128})
    for (std::size_t k = 1; k <= 4; ++k) choose(step * k - 1), choose(step * k);
  for (std::size_t tries = 0; chosen.size() < count && tries < 16 * count; ++tries)
    choose(at_random());
  for (std::size_t row = 0; row < rows; ++row) choose(row);
  return chosen;
}

}  // namespace attn
