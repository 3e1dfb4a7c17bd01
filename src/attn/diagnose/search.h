// The search for the mistake of a kernel: tests hypotheses, and keeps what explains the result.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attn/diagnose/compared_sample.h"
#include "attn/diagnose/diagnosis.h"
#include "attn/diagnose/hypotheses.h"

namespace attn {

/// Why a part of the search was left out.
inline constexpr const char* kTooLarge = "because the job is too large for it";
/// Errors that a number that does not fit leaves.
inline constexpr double kMuchLarger = 4. / 3;

/// A hypothesis and what it made of the job.
struct Candidate {
  const Hypothesis* hypothesis = nullptr;
  Claim claim;
  Fit first, fit;  ///< of the first part, and of all parts that were evaluated
  bool complete = false;
};

/// A claim without what explains it: "--scale 0.1" of "--scale 0.1, applied twice".
std::string flags_in(const std::string& claim);

/// What is known of the mistake so far, and the time that is left to search for it.
class Search {
 public:
  /// `evidence` and `limits` must outlive this object. Errors: data, if the job is not valid.
  Search(const Variant& given, const Evidence& evidence, const SearchLimits& limits);

  ComparedSample& sample() { return sample_; }
  const SearchLimits& limits() const { return limits_; }
  Diagnosis& found() { return found_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  /// Whether something was found that find_smaller_errors() tries to improve on.
  bool is_refining() const { return named_.has_value(); }
  bool is_explained() const;

  /// Why the search ends now; "" if it goes on.
  std::string reason_to_stop() const;
  /// Since the search began. A busy machine takes longer, but finds the same.
  double seconds() const;
  /// Calls a part of the search that ends after its share of the time that `left` parts have.
  template <class Part>
  void with_limited_time(int left, const Part& part) {
    const double now = seconds();
    end_ =
        now + std::clamp((kSecondsWithMorePairs - now) / left, kLeastSeconds, kSecondsForMorePairs);
    part();
    end_.reset();
  }
  /// The same as a condition. Sets Diagnosis::why_untested.
  bool is_over();
  /// Calls compute(i) for each i below `count`, in parallel if the job is large.
  void in_parallel(std::size_t count, const std::function<void(std::size_t)>& compute) const;
  /// Calls a part of the search, which finds nothing if its jobs are not valid or too large.
  void attempt(const char* name, const std::function<void()>& search);
  /// A part that is not tested, and why; only the first reason is kept.
  void add_untested(const std::string& what, const char* why);

  /// Evaluates the variant until it is known not to explain the result.
  void judge(Variant variant, Candidate& candidate);
  /// A bound may be so wide that it holds for any result, so the errors must become smaller, too,
  /// unless they are NaN in the job or in the result.
  bool explains(const Candidate& candidate) const;
  /// Whether the errors themselves are smaller, and do not only fit into wide bounds.
  bool is_smaller(const Fit& after) const;
  Finding finding_of(const std::string& id, const Candidate& candidate) const;
  void set_fit(Finding& finding, const Fit& fitted) const;
  /// Whether this change of the job explains the result; if so, it is kept as a finding.
  bool test_fit(const char* id, const std::function<Found(Variant&)>& change);

  /// Tests each hypothesis alone. `all` must outlive candidates().
  void test_all(const Hypotheses& all);
  /// Keeps those that explain as much as the best, with errors about as small.
  void name_the_best();
  /// Calls a part of the search, unless something was found that leaves the errors of stored
  /// numbers. Keeps what it finds if that leaves much smaller errors than what was found before.
  void find_smaller_errors(const std::function<void()>& search);

 private:
  /// A hypothesis that was tested, or the reason why not. Neither if it does not apply.
  struct Tested {
    std::optional<Candidate> candidate;
    std::string why_untested;
  };
  /// Each part of the search for more pairs takes a second, but less if the search then took longer
  /// than this.
  static constexpr double kSecondsForMorePairs = 1, kSecondsWithMorePairs = 3.5,
                          kLeastSeconds = 0.2;

  /// Whether the errors are larger than explains() and find_smaller_errors() accept: then bounds,
  /// which take longer, need not be known.
  bool leaves_too_much(const Variant& variant, const Fit& first);
  Tested test(const Hypothesis& hypothesis);
  /// Whether a hypothesis about gradients has the result of an earlier one that says the same: less
  /// of it, or that both passes have this mistake.
  bool has_same_result(const Candidate& candidate) const;
  /// Whether the errors that a finding leaves are larger than those of stored numbers, and bounds
  /// so wide that other numbers may fit better.
  bool may_be_another(const Finding& finding) const;
  /// Infinite if it is not that of a hypothesis alone.
  double rms_in_first_part(const Finding& finding) const;

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::clock_t start_of_work_ = std::clock();
  ComparedSample sample_;
  const SearchLimits& limits_;
  std::optional<double> end_;  ///< of a part of the search whose time is limited
  std::mutex bounds_mutex_;    ///< bounds take much memory: one thread at a time computes them
  /// The errors of what was named before find_smaller_errors() searches on, in the first part and
  /// in all.
  struct Named {
    double first_rms, rms;
  };
  std::optional<Named> named_;
  std::vector<Candidate> candidates_;
  Diagnosis found_;
};

}  // namespace attn
