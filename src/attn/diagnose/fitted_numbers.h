// Hypotheses with a number that the result suggests: a factor of the scores, a softcap, the score
// of hidden keys, a window, a prefix.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "attn/diagnose/search.h"

namespace attn {

/// Fits numbers to the first part of the sample, and tests the jobs with these.
class FittedNumbers {
 public:
  /// `has_other_change`: the base of the sample is not the job itself.
  explicit FittedNumbers(Search& search, bool has_other_change = false)
      : search_(search), sample_(search.sample()), has_other_change_(has_other_change) {}

  /// All of the following, as far as time allows.
  void test();

  /// Scores of hidden keys, to two or three significant digits if these suffice.
  void test_scores();
  /// A window, keys beside it, and a prefix.
  void test_masks();
  /// Factors of the scores: one for all heads or, if none explains the result, one for each.
  void test_factors();
  /// Another softcap, to two or three significant digits if these suffice.
  void test_softcap();

 private:
  /// Changes a job by numbers, one for each head.
  using Change = std::function<void(Variant&, const std::vector<double>&)>;
  /// Whether factors of the scores, one for each head or one for all, explain the result.
  bool test_factor(bool is_common);
  void test_each();
  /// The queries of all heads and items whose rows are not within their bounds, in order; of the
  /// sample if the job has another change.
  std::vector<std::size_t> sorted_queries_that_differ();
  /// The number from `from` to `to` with the smallest errors of the first part.
  std::optional<std::int64_t> fitted_number(std::int64_t from, std::int64_t to,
                                            Found (*change)(Variant&, const Inputs&, std::int64_t));
  /// The squares of the errors of each head in the first part, with this change by the factors.
  std::vector<double> squares_with(const Change& change, const std::vector<double>& factors);
  /// For each head, or for all, the factor that leaves the smallest errors in the first part: the
  /// best of a grid, and then a golden section search. nullopt if none makes the errors much
  /// smaller. `squares_of_grid`: empty, or from an earlier call with this change.
  std::optional<std::vector<double>> fitted_factors(
      const Change& change, bool is_common, std::vector<std::vector<double>>& squares_of_grid);

  Search& search_;
  ComparedSample& sample_;
  const bool has_other_change_;
  std::vector<std::vector<double>> squares_of_grid_;  ///< of factors of scores, for each head
};

}  // namespace attn
