#include "attn/diagnose/pair_search.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/diagnose/arrangements.h"
#include "attn/diagnose/changes.h"

namespace attn {
namespace {

std::string with_job(const Claim& claim) {
  return claim.kernel + (claim.job.empty() ? "" : " (the job has " + claim.job + ")");
}

}  // namespace

void PairSearch::run() {
  if (sample_.before().outside < kFewestWrong) {
    if (found_.untested.empty())
      found_.why_untested = "with only " + counted(sample_.before().outside, "wrong element");
    found_.untested.emplace_back("pairs");
    return;
  }
  if (!search_.is_explained()) test_pairs();
  if (search_.is_refining()) return;
  if (!search_.is_explained()) test_scaled_result();
  if (!search_.is_explained())
    search_.with_limited_time(3, [&] {
      test_with_others("pairs with numbers that the result suggests",
                       [](FittedNumbers& numbers) { numbers.test_scores(), numbers.test_masks(); });
    });
  if (!search_.is_explained()) search_.with_limited_time(2, [&] { test_more_pairs(); });
  if (!search_.is_explained())
    search_.with_limited_time(1, [&] {
      test_with_others("pairs with a factor of the scores",
                       [](FittedNumbers& numbers) { numbers.test_factors(); });
    });
  name_scale();
  if (!search_.is_explained())
    search_.attempt("pairs with another arrangement", [&] { test_arranged(); });
}

void PairSearch::name_scale() {
  std::vector<Finding>& fits = found_.findings;
  if (fits.empty() || fits.front().ids.back() != "scale.factor" ||
      !search_.reason_to_stop().empty())
    return;
  Pairs pairs;
  for (const Hypothesis& first : all_)
    if (first.full_id() == fits.front().ids.front())
      for (const Hypothesis& second : all_)
        if (second.group() == "scale") pairs.emplace_back(&first, &second);
  const std::vector<Finding> named = std::exchange(fits, {});
  test(pairs, "pairs");
  if (fits.empty() || fits.front().residual_after > kMuchLarger * named.front().residual_after)
    fits = named;
}

void PairSearch::test_scaled_result() {
  const auto factor = common_row_factor();
  if (!factor || !sample_.depends_on_scores() || sample_.evidence().bounds == nullptr) return;
  const std::string claim = "the result multiplied by " + six_digits(*factor);
  if (sample_.evidence().excerpt != nullptr)
    return search_.add_untested("pairs with " + claim, kTooLarge);
  const auto divided = [&](const Tensor& tensor, double by) {
    return mapped(tensor, [&](double x) { return x / by; });
  };
  const Tensor result = divided(sample_.evidence().result, *factor);
  const Tensor bounds = divided(*sample_.evidence().bounds, std::abs(*factor));
  const Evidence of_job{sample_.evidence().output,    result,
                        sample_.evidence().reference, &bounds,
                        sample_.evidence().tolerance, sample_.evidence().precision,
                        sample_.evidence().view};
  SearchLimits limits = search_.limits();
  if (limits.seconds) limits.seconds = std::max(0.0, *limits.seconds - search_.seconds());
  const Diagnosis found = diagnose_alone_(sample_.given(), of_job, limits);
  found_.pairs += found.tested;
  if (!found.untested.empty() && found.findings.empty())
    search_.add_untested("pairs with " + claim, found.why_untested.c_str());
  for (Finding finding : found.findings) {
    if (finding.ids.front().starts_with("values.factor")) continue;
    finding.ids.insert(finding.ids.begin(), "values.factor");
    finding.kernel = claim + " and " + finding.kernel;
    finding.residual_before = sample_.before().rms(), finding.residual_after *= std::abs(*factor);
    finding.flags = "";
    found_.findings.push_back(std::move(finding));
  }
}

std::optional<double> PairSearch::common_row_factor() const {
  constexpr double kNear = 0.01;
  std::vector<double> factors;
  for (const ComparedPart& part : sample_.parts()) {
    const auto a = part.result.data<double>(), b = part.reference.data<double>();
    const std::size_t columns = std::max<std::size_t>(1, part.result.shape().back());
    for (std::size_t row = 0; row < a.size() && columns > 1; row += columns) {
      double ab = 0, bb = 0;
      for (std::size_t i = row; i < row + columns; ++i) ab += a[i] * b[i], bb += b[i] * b[i];
      const double factor = ab / bb;
      bool is_multiple = std::isfinite(factor) && std::abs(factor - 1) > kNear;
      for (std::size_t i = row; i < row + columns && is_multiple; ++i) {
        const double bound =
            bound_of(part.bounds_or_null(), i, sample_.evidence().tolerance, b[i], DType::f64);
        is_multiple = is_within(a[i], factor * b[i], bound * std::max(1.0, std::abs(factor)));
      }
      if (is_multiple) factors.push_back(factor);
    }
  }
  if (factors.size() < 2) return std::nullopt;
  std::sort(factors.begin(), factors.end());
  const double median = factors[factors.size() / 2];
  const auto near = std::count_if(factors.begin(), factors.end(), [&](double factor) {
    return std::abs(factor - median) <= kNear * std::abs(median);
  });
  const bool is_common = 2 * static_cast<std::size_t>(near) > factors.size();
  return is_common && median != 0 ? std::optional(median) : std::nullopt;
}

bool PairSearch::is_too_slow(const Hypothesis& hypothesis) const {
  return hypothesis.is_slow() && sample_.depends_on_scores() &&
         sample_.in().B * sample_.in().H * sample_.in().S > kSampledScores / sample_.in().L;
}

std::vector<const Candidate*> PairSearch::ranked_candidates() const {
  std::vector<const Candidate*> best;
  for (const Candidate& candidate : search_.candidates())
    if (candidate.first.finite > 0 && !is_too_slow(*candidate.hypothesis))
      best.push_back(&candidate);
  std::stable_sort(best.begin(), best.end(), [](const Candidate* a, const Candidate* b) {
    return a->first.rms() < b->first.rms();
  });
  return best;
}

void PairSearch::add_pair(const Hypothesis* a, const Hypothesis* b, Pairs& pairs) {
  if (a->group() == b->group() && a->group() != "window" && a->group() != "rotary" &&
      a->group() != "backward")
    return;
  if (sample_.is_of_gradients() &&
      (a->projects() != b->projects() || a->pass != Hypothesis::Pass::both ||
       b->pass != Hypothesis::Pass::both))
    return;
  if (!a->projects() && b->projects()) std::swap(a, b);
  if (a != b && tested_pairs_.insert({a, b}).second) pairs.emplace_back(a, b);
}

void PairSearch::test_pairs() {
  const std::vector<const Candidate*> best = ranked_candidates();
  Pairs pairs;
  for (std::size_t i = 0; i < std::min<std::size_t>(6, best.size()); ++i)
    for (std::size_t j = 0; j < i; ++j) add_pair(best[j]->hypothesis, best[i]->hypothesis, pairs);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, best.size()); ++i)
    for (const Hypothesis& other : all_)
      if (sample_.is_relevant(other) && !is_too_slow(other))
        add_pair(best[i]->hypothesis, &other, pairs);
  test(pairs, "pairs");
}

void PairSearch::test_more_pairs() {
  if (sample_.is_of_gradients()) return;
  Pairs pairs;
  for (const Candidate* one : ranked_candidates())
    for (const Hypothesis& other : all_)
      if (sample_.is_relevant(other) && !is_too_slow(other))
        add_pair(one->hypothesis, &other, pairs);
  test(pairs, "more pairs");
}

void PairSearch::test(const Pairs& pairs, const char* name) {
  std::vector<TestedPair> tested(pairs.size());
  search_.in_parallel(pairs.size(), [&](std::size_t i) {
    if (search_.reason_to_stop().empty())
      tested[i] = test_pair(*pairs[i].first, *pairs[i].second);
    else
      tested[i].is_skipped = true;
  });
  const bool some_skipped = std::any_of(tested.begin(), tested.end(),
                                        [](const TestedPair& pair) { return pair.is_skipped; });
  if (some_skipped && search_.is_over()) found_.untested.emplace_back(name);
  std::vector<Finding> fitting;
  for (TestedPair& pair : tested) {
    found_.pairs += pair.is_valid ? 1 : 0;
    if (pair.finding) fitting.push_back(*std::move(pair.finding));
  }
  if (fitting.empty()) return;
  std::stable_sort(fitting.begin(), fitting.end(), [](const Finding& a, const Finding& b) {
    return a.residual_after < b.residual_after;
  });
  std::set<std::set<std::string>> named;  // the same two in either order are one finding
  for (const Finding& finding : fitting)
    if (finding.residual_after <= 2 * fitting.front().residual_after &&
        named.emplace(finding.ids.begin(), finding.ids.end()).second)
      found_.findings.push_back(finding);
}

void PairSearch::test_with_others(const char* name, const Fits& fits) {
  if (!sample_.depends_on_scores()) return;
  for (const Candidate* candidate : ranked_candidates()) {
    if (search_.is_over()) return void(found_.untested.emplace_back(name));
    search_.attempt(name, [&] { test_with(*candidate, name, fits); });
    if (!found_.findings.empty()) return;
  }
}

void PairSearch::test_with(const Candidate& candidate, const char* name, const Fits& fits) {
  const Hypothesis& hypothesis = *candidate.hypothesis;
  ChangedJob job = sample_.changed(hypothesis);
  if (job.claims.empty() || job.too_large) return;
  Inputs in = make_inputs(job.variant);
  sample_.with_base(std::move(job.variant), std::move(in), [&] {
    FittedNumbers numbers(search_, true);
    search_.attempt(name, [&] { fits(numbers); });
  });
  for (Finding& finding : found_.findings) {
    finding.ids.insert(finding.ids.begin(), hypothesis.full_id());
    finding.kernel = with_job(job.claims[0]) + " and " + finding.kernel;
    finding.flags = "";
  }
}

void PairSearch::test_arranged() {
  if (!sample_.depends_on_scores() || sample_.is_of_some_heads() ||
      sample_.size().queries != sample_.given_in().rows.size())
    return;
  const Tensor result = taken(sample_.evidence().result, sample_.evidence().view);
  const Shape& shape = result.shape();
  const Matrices view = contiguous(shape);
  for (const Candidate& candidate : search_.candidates()) {
    if (search_.is_over()) {
      found_.untested.emplace_back("pairs with another arrangement");
      return;
    }
    try {
      const ChangedJob job = sample_.changed(*candidate.hypothesis);
      if (job.claims.empty() || job.too_large) continue;
      const Evaluated result_of_job = evaluate(
          job.variant, *sample_.output(), sample_.given_in().rows, sample_.evidence().precision);
      if (result_of_job.values.shape() != shape) continue;
      const Evidence other{sample_.evidence().output,
                           result,
                           result_of_job.values,
                           result_of_job.bounds ? &*result_of_job.bounds : nullptr,
                           sample_.evidence().tolerance,
                           sample_.evidence().precision,
                           view};
      ++found_.pairs;
      for (const Arrangement& arrangement : matching_arrangements(other)) {
        if (!search_.is_smaller(arrangement.fit)) continue;
        Finding finding = search_.finding_of(std::string(candidate.hypothesis->id), candidate);
        finding.ids.push_back(arrangement.id);
        finding.kernel += (finding.job.empty() ? "" : " (the job has " + finding.job + ")") +
                          " and " + arrangement.kernel;
        finding.job = finding.flags = "";
        search_.set_fit(finding, arrangement.fit);
        found_.findings.push_back(std::move(finding));
      }
    } catch (const Error&) {  // the changed job is not valid
    }
  }
  std::stable_sort(
      found_.findings.begin(), found_.findings.end(),
      [](const Finding& a, const Finding& b) { return a.residual_after < b.residual_after; });
  const auto is_worse = [&](const Finding& finding) {
    return finding.residual_after > 2 * found_.findings.front().residual_after;
  };
  const auto end = std::find_if(found_.findings.begin(), found_.findings.end(), is_worse);
  found_.findings.erase(end, found_.findings.end());
}

PairSearch::TestedPair PairSearch::test_pair(const Hypothesis& a, const Hypothesis& b) {
  try {
    const ChangedJob job = sample_.changed(a, &b);
    if (job.claims.size() < 2 || job.too_large) return {};
    const Claim &first = job.claims[0], &second = job.claims[1];
    Candidate candidate;
    candidate.hypothesis = &a;
    search_.judge(job.variant, candidate);
    if (!search_.explains(candidate)) return {false, true, std::nullopt};
    Finding finding;
    finding.ids = {std::string(a.id), std::string(b.id)};
    finding.kernel = with_job(first) + " and " + with_job(second);
    if (first.is_flag && second.is_flag)
      finding.flags = flags_in(first.kernel) + " " + flags_in(second.kernel);
    search_.set_fit(finding, candidate.fit);
    return {false, true, finding};
  } catch (const Error&) {  // the changed job is not valid
    return {};
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace attn
