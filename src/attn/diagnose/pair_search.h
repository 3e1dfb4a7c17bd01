// The search for two mistakes at once: pairs of hypotheses, or one and a number that the result
// suggests, a factor of the result or another arrangement.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attn/diagnose/fitted_numbers.h"
#include "attn/diagnose/search.h"

namespace attn {

class PairSearch {
 public:
  /// Searches for one mistake in a result.
  using DiagnoseAlone = Diagnosis (*)(const Variant&, const Evidence&, const SearchLimits&);

  /// `all` are the hypotheses that `search` has tested alone; they must outlive this object.
  PairSearch(Search& search, const Hypotheses& all, DiagnoseAlone diagnose_alone)
      : search_(search),
        sample_(search.sample()),
        found_(search.found()),
        all_(all),
        diagnose_alone_(diagnose_alone) {}

  /// Finds nothing if too few elements are wrong to tell which two mistakes these are.
  void run();

 private:
  using Pairs = std::vector<std::pair<const Hypothesis*, const Hypothesis*>>;
  using Fits = std::function<void(FittedNumbers&)>;

  struct TestedPair {
    bool is_skipped = false;
    bool is_valid = false;           ///< both hypotheses apply
    std::optional<Finding> finding;  ///< if they explain the result
  };

  /// Replaces a pair with a factor of the scores by one with a hypothesis about the scale that
  /// explains as much.
  void name_scale();
  /// One mistake and a factor of the result, which shows in rows that the mistake does not change.
  void test_scaled_result();
  /// The factor other than 1 that most rows have, of those that are multiples of the job's.
  std::optional<double> common_row_factor() const;
  /// Of large jobs, hypotheses that are slow are tested alone only.
  bool is_too_slow(const Hypothesis& hypothesis) const;
  /// Those that reduce the error most come first.
  std::vector<const Candidate*> ranked_candidates() const;
  /// Adds a pair of hypotheses that may be combined, unless it is among those that were tested.
  void add_pair(const Hypothesis* a, const Hypothesis* b, Pairs& pairs);
  /// Pairs of the hypotheses that reduce the error most, then these with all others.
  void test_pairs();
  /// All other pairs, as far as time allows. Alone, each of two mistakes may even enlarge the
  /// error.
  void test_more_pairs();
  void test(const Pairs& pairs, const char* name);
  /// Numbers that the result suggests if it also has another mistake, as far as time allows.
  void test_with_others(const char* name, const Fits& fits);
  void test_with(const Candidate& candidate, const char* name, const Fits& fits);
  /// Hypotheses whose results are arranged in another way, if the sample has all queries.
  void test_arranged();
  TestedPair test_pair(const Hypothesis& a, const Hypothesis& b);

  Search& search_;
  ComparedSample& sample_;
  Diagnosis& found_;
  const Hypotheses& all_;
  const DiagnoseAlone diagnose_alone_;
  std::set<std::pair<const Hypothesis*, const Hypothesis*>> tested_pairs_;
};

}  // namespace attn
