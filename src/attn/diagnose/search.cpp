#include "attn/diagnose/search.h"

#include <cmath>
#include <new>
#include <numeric>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/problem/threads.h"

namespace attn {
namespace {

constexpr double kSlightlyLarger = 1.25;  ///< squares of errors that differ by chance

}  // namespace

std::string flags_in(const std::string& claim) {
  return claim.substr(0, std::min(claim.find(", "), claim.find(": ")));
}

Search::Search(const Variant& given, const Evidence& evidence, const SearchLimits& limits)
    : sample_(given, evidence), limits_(limits) {
  found_.sample = sample_.size();
}

bool Search::is_explained() const {
  return !found_.findings.empty() || !found_.arithmetic.empty() || sample_.is_blank();
}

std::string Search::reason_to_stop() const {
  if (limits_.stop != nullptr && *limits_.stop) return "because the search was stopped";
  const double passed = seconds();
  if (limits_.seconds && passed >= *limits_.seconds)
    return "within " + six_digits(kSearchSeconds) + " s; --diagnose tests all";
  if (end_ && passed >= *end_) return "for lack of time";
  return "";
}

double Search::seconds() const {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  const auto used = static_cast<double>(std::clock() - start_of_work_) / CLOCKS_PER_SEC;
  return std::min(passed.count(), used);
}

bool Search::is_over() {
  const std::string reason = reason_to_stop();
  if (!reason.empty()) found_.why_untested = reason;
  return !reason.empty();
}

void Search::in_parallel(std::size_t count, const std::function<void(std::size_t)>& compute) const {
  constexpr std::size_t kLarge = std::size_t{1} << 18;
  const std::size_t rows = sample_.is_of_gradients()     ? sample_.in().rows.size()
                           : sample_.depends_on_scores() ? sample_.size().queries
                                                         : 0;
  run_in_parallel(
      count,
      sample_.in().B * sample_.in().H * sample_.in().S * rows < kLarge ? 1 : kMostSearchThreads,
      compute);
}

void Search::attempt(const char* name, const std::function<void()>& search) {
  try {
    search();
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {
    found_.why_untested = kTooLarge;
    found_.untested.emplace_back(name);
  }
}

void Search::add_untested(const std::string& what, const char* why) {
  found_.untested.push_back(what);
  if (found_.why_untested.empty()) found_.why_untested = why;
}

bool Search::leaves_too_much(const Variant& variant, const Fit& first) {
  const double before =
      sample_.first_before().wrong_squares;  // 0 if all wrong elements are NaN in the job
  if (before > 0 && 2 * first.wrong_squares > before) return true;
  if (!named_) return false;
  if (first.rms() > kSlightlyLarger * named_->first_rms) return true;
  Fit all = first;
  for (std::size_t k = 1; k < sample_.parts().size(); ++k) {
    const auto result = sample_.evaluated(variant, sample_.parts()[k], false);
    if (!result) return true;
    all.add(sample_.fit_of(sample_.parts()[k], result->values, nullptr));
  }
  return kMuchLarger * all.rms() > named_->rms;
}

void Search::judge(Variant variant, Candidate& candidate) {
  std::size_t all = 0;
  for (const ComparedPart& part : sample_.parts()) all += part.result.size();
  InputErrors known;
  for (std::size_t k = 0; k < sample_.parts().size(); ++k) {
    ComparedPart& part = sample_.parts()[k];
    std::optional<Evaluated> result;
    if (k == 0) {
      auto values = sample_.evaluated(variant, part, false);
      if (!values) return;
      sample_.adapt_empty_rows(variant, part, *values);
      candidate.first = sample_.fit_of(part, values->values, nullptr);
      if (!sample_.is_possible(part, values->values)) return;
      if (leaves_too_much(variant, candidate.first)) return;
      if (sample_.is_of_gradients()) result = values, sample_.add_bounds(part, *result);
    }
    if (!result && sample_.is_of_gradients()) {
      result = sample_.evaluated(variant, part, true);
    } else if (!result) {
      const std::lock_guard lock(bounds_mutex_);
      result = sample_.evaluated(variant, part, true, &known);
    }
    if (!result) return;
    candidate.fit.add(
        sample_.fit_of(part, result->values, result->bounds ? &*result->bounds : nullptr));
    if (static_cast<double>(candidate.fit.outside) > (1 - kExplained) * static_cast<double>(all))
      return;
  }
  candidate.complete = true;
}

Search::Tested Search::test(const Hypothesis& hypothesis) {
  Candidate candidate;
  candidate.hypothesis = &hypothesis;
  try {
    if (hypothesis.is_slow())
      if (std::string reason = reason_to_stop(); !reason.empty()) return {{}, reason};
    const ChangedJob job = sample_.changed(hypothesis);
    if (job.claims.empty()) return {};
    if (std::string reason = reason_to_stop(); !reason.empty()) return {{}, reason};
    if (job.too_large) return {{}, kTooLarge};
    candidate.claim = job.claims[0];
    judge(job.variant, candidate);
  } catch (const Error&) {  // the changed job is not valid
    return {};
  } catch (const std::bad_alloc&) {
    return {{}, kTooLarge};
  }
  return {candidate, ""};
}

void Search::test_all(const Hypotheses& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  if (!limits_.seconds)  // the slow ones first, beside which another thread tests the others
    std::stable_partition(order.begin(), order.end(),
                          [&](std::size_t i) { return all[i].is_slow(); });
  std::vector<Tested> tested(all.size());
  in_parallel(all.size(), [&](std::size_t k) {
    const std::size_t i = order[k];
    if (sample_.is_relevant(all[i])) tested[i] = test(all[i]);
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (tested[i].candidate) {
      ++found_.tested;
      if (!has_same_result(*tested[i].candidate))
        candidates_.push_back(*std::move(tested[i].candidate));
    }
    if (tested[i].why_untested.empty()) continue;
    if (found_.why_untested.empty() || found_.why_untested == kTooLarge)
      found_.why_untested = tested[i].why_untested;
    found_.untested.push_back(all[i].full_id());
  }
}

bool Search::has_same_result(const Candidate& candidate) const {
  const Hypothesis& b = *candidate.hypothesis;
  return sample_.is_of_gradients() &&
         std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
           const Hypothesis& a = *other.hypothesis;
           return (a.id == b.id || (a.group() == "backward" && b.group() == "backward")) &&
                  other.first.squares == candidate.first.squares &&
                  other.first.outside == candidate.first.outside;
         });
}

bool Search::explains(const Candidate& candidate) const {
  const Fit& after = candidate.fit;
  const bool are_smaller = sample_.before().wrong_squares == 0 ||
                           (after.squares <= kSlightlyLarger * sample_.before().squares &&
                            4 * after.wrong_squares <= sample_.before().wrong_squares);
  return candidate.complete && are_smaller && after.explained() >= kExplained &&
         10 * after.outside <= sample_.before().outside;
}

Finding Search::finding_of(const std::string& id, const Candidate& candidate) const {
  Finding finding;
  finding.ids = {id};
  finding.kernel = candidate.claim.kernel, finding.job = candidate.claim.job;
  if (candidate.claim.is_flag) finding.flags = flags_in(candidate.claim.kernel);
  set_fit(finding, candidate.fit);
  return finding;
}

void Search::set_fit(Finding& finding, const Fit& fitted) const {
  finding.explained = fitted.explained();
  finding.residual_before = sample_.before().rms(), finding.residual_after = fitted.rms();
}

void Search::name_the_best() {
  std::vector<const Candidate*> fitting;
  for (const Candidate& candidate : candidates_)
    if (explains(candidate)) fitting.push_back(&candidate);
  if (fitting.empty()) return;
  const auto least = [&](auto value) {
    return value(**std::min_element(
        fitting.begin(), fitting.end(),
        [&](const Candidate* a, const Candidate* b) { return value(*a) < value(*b); }));
  };
  const auto outside = [](const Candidate& c) { return static_cast<double>(c.fit.outside); };
  const auto rms = [](const Candidate& c) { return c.fit.rms(); };
  const double fewest = least(outside), smallest = least(rms);
  for (const Candidate* candidate : fitting) {
    if (outside(*candidate) > 3 * fewest || rms(*candidate) > 2 * smallest) continue;
    Finding finding = finding_of(candidate->hypothesis->full_id(), *candidate);
    const auto says_the_same = [&](const Finding& other) { return other.kernel == finding.kernel; };
    if (std::none_of(found_.findings.begin(), found_.findings.end(), says_the_same))
      found_.findings.push_back(std::move(finding));
  }
  if (found_.findings.empty())
    found_.findings.push_back(finding_of(fitting.front()->hypothesis->full_id(), *fitting.front()));
  std::stable_sort(
      found_.findings.begin(), found_.findings.end(),
      [](const Finding& a, const Finding& b) { return a.residual_after < b.residual_after; });
}

bool Search::is_smaller(const Fit& after) const {
  return 2 * after.rms() <= sample_.before().rms();
}

bool Search::may_be_another(const Finding& finding) const {
  constexpr double kWide = 1e-4;
  return sample_.evidence().precision != nullptr && sample_.evidence().precision->result > kWide &&
         finding.residual_after >
             0.9 * sample_.evidence().precision->result * sample_.reference_rms();
}

void Search::find_smaller_errors(const std::function<void()>& search) {
  std::vector<Finding>& fits = found_.findings;
  if (!fits.empty() && !may_be_another(fits.front())) return;
  const std::vector<Finding> named = std::exchange(fits, {});
  if (!named.empty()) named_ = {rms_in_first_part(named.front()), named.front().residual_after};
  search();
  named_.reset();
  if (fits.empty()) return void(fits = named);
  const double least =
      std::min_element(fits.begin(), fits.end(), [](const Finding& a, const Finding& b) {
        return a.residual_after < b.residual_after;
      })->residual_after;
  if (!named.empty() && named.front().residual_after < kMuchLarger * least)
    return void(fits = named);
  std::erase_if(
      fits, [&](const Finding& finding) { return finding.residual_after > kMuchLarger * least; });
}

double Search::rms_in_first_part(const Finding& finding) const {
  for (const Candidate& candidate : candidates_)
    if (finding.ids == std::vector{candidate.hypothesis->full_id()}) return candidate.first.rms();
  return HUGE_VAL;
}

bool Search::test_fit(const char* id, const std::function<Found(Variant&)>& change) {
  try {
    Variant variant = sample_.base();
    const auto claim = change(variant);
    if (!claim) return false;
    Candidate candidate;
    candidate.claim = *claim;
    judge(variant, candidate);
    ++found_.tested;
    if (!explains(candidate)) return false;
    found_.findings.push_back(finding_of(id, candidate));
    return true;
  } catch (const Error&) {  // the changed job is not valid
    return false;
  }
}

}  // namespace attn
