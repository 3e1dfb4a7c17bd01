#include "attn/diagnose/diagnosis.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <mutex>
#include <new>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "attn/attention/fused_gradients.h"
#include "attn/attention/score.h"
#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/diagnose/arrangements.h"
#include "attn/diagnose/backward_hypotheses.h"
#include "attn/diagnose/backward_pass.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/evaluation.h"
#include "attn/diagnose/hidden_keys.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/diagnose/pattern.h"
#include "attn/diagnose/recovered_weights.h"
#include "attn/diagnose/rounded_weights.h"
#include "attn/problem/layout.h"
#include "attn/problem/threads.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

/// Each part of the search for more pairs takes a second, but less if the search then took longer
/// than this.
constexpr double kSecondsForMorePairs = 1, kSecondsWithMorePairs = 3.5, kLeastSeconds = 0.2;
constexpr std::size_t kFewestForPairs = 4;  ///< wrong elements
constexpr double kSlightlyLarger = 1.25;    ///< squares of errors that differ by chance
constexpr double kMuchLarger = 4. / 3;      ///< errors that a number that does not fit leaves
constexpr double kMostUneven = 12;  ///< errors of rounding: nearly the largest of rows / the median
constexpr const char* kTooLarge = "because the job is too large for it";
constexpr std::size_t kMostQueries = 256, kFirstQueries = 12;
constexpr std::size_t kScores = std::size_t{1} << 18;  ///< in the memory of a thread at once
constexpr std::size_t kSampledScores = std::size_t{1} << 22;
/// From this number of scores on, some heads are evaluated.
constexpr std::size_t kScoresOfAllHeads = std::size_t{1} << 23;
/// Of gradients, which are sums over all queries.
constexpr std::size_t kScoresOfHeads = std::size_t{1} << 23, kFewestHeads = 3;
/// Where the kernels cannot compute the gradients of a changed job.
constexpr std::size_t kMostKeptScores = std::size_t{1} << 24;

/// Some queries of the result and of its job, or of a gradient some key/value heads.
struct ComparedPart {
  std::vector<std::size_t> rows;     ///< of the result
  std::vector<std::size_t> queries;  ///< of the job, which may compute some of them only
  std::vector<KvHead> heads;         ///< empty: all
  Tensor result, reference;
  std::optional<Tensor> bounds;
  std::vector<bool> wrong;                  ///< elements that differ from the job
  std::optional<Tensor> of_earlier_stages;  ///< bounds / those of attention_only(), at least 1
};

/// A claim without what explains it: "--scale 0.1" of "--scale 0.1, applied twice".
std::string flags_in(const std::string& claim) {
  return claim.substr(0, std::min(claim.find(", "), claim.find(": ")));
}

/// A hypothesis and what it made of the job.
struct Candidate {
  const Hypothesis* hypothesis = nullptr;
  Claim claim;
  Fit first, fit;  ///< of the first part, and of all parts that were evaluated
  bool complete = false;
};

std::string with_job(const Claim& claim) {
  return claim.kernel + (claim.job.empty() ? "" : " (the job has " + claim.job + ")");
}

using Pairs = std::vector<std::pair<const Hypothesis*, const Hypothesis*>>;

struct TestedPair {
  bool is_skipped = false;
  bool is_valid = false;           ///< both hypotheses apply
  std::optional<Finding> finding;  ///< if they explain the result
};

class Search {
 public:
  /// `tests_pairs`: also of two mistakes at once.
  Search(const Variant& given, const Evidence& evidence, const SearchLimits& limits,
         bool tests_pairs = true)
      : given_(given), evidence_(evidence), limits_(limits), tests_pairs_(tests_pairs) {
    given_.options.compute = Compute::f64;
    for (const auto& [name, tensor] : given.tensors)
      if (is_float(tensor.dtype())) given_.tensors.set(name, cast(tensor, DType::f64));
    const bool is_backward = is_of_gradients(evidence.output);
    if (!is_backward)
      if (const Output* output = std::get_if<Output>(&evidence.output)) output_ = *output;
    by_score_ = output_ && needs_scores(*output_);
    given_in_ = make_inputs(given_);
    if (by_score_ || is_backward) {
      base_ = attention_only(given_);
      if (is_backward) base_.options.rows = given_.options.rows;
      in_ = make_inputs(base_);
    }
    if (is_backward) backward_.emplace(given_in_, base_, evidence.output);
    if (by_score_) choose_heads();
    if (backward_ && backward_->is_by_head() && !few_heads().empty())
      sample_heads();
    else
      sample();
  }

  Diagnosis run() {
    const std::vector<Hypothesis> all =
        backward_ ? gradient_hypotheses(evidence_.output) : hypotheses();
    test_all(all);
    if (!is_blank_everywhere()) name_the_best();
    if (!is_blank()) find_smaller_errors([&] { add_arrangements(); });
    if (by_score_ && !is_blank()) find_smaller_errors([&] { test_fitted(); });
    if (found_.findings.empty() && !is_blank())
      attempt("weights in e4m3", [&] { test_rounded_weights(); });
    if (found_.findings.empty() && found_.arithmetic.empty() && !is_blank())
      attempt("scores of bf16 factors", [&] { test_rounded_factors(); });
    if (found_.findings.empty() && found_.arithmetic.empty()) {
      test_arithmetic({"f32", "tf32", "f16", "bf16"}, false);
      // Sums in float16 are common there, and within the bound of bfloat16.
      if (!found_.arithmetic.empty() && evidence_.precision->stored == DType::f16)
        test_arithmetic({"f16"}, true);
    }
    if (!tests_pairs_) return found_;
    if (found_.arithmetic.empty() && !is_blank()) find_smaller_errors([&] { test_combined(all); });
    // Their bounds are wide, and contain many a mistake that was not tested.
    if (!is_explained() && found_.untested.empty() && evidence_.precision != nullptr)
      for (const auto& [dtype, name] : {std::pair{DType::f16, "f16"}, {DType::bf16, "bf16"}})
        if (evidence_.precision->stored == dtype) test_arithmetic({name}, true);
    if (evidence_.excerpt != nullptr && evidence_.excerpt->some_rows->view.H > 1 && !is_explained())
      for (const char* id : {"output.viewed", "output.viewed_as_heads"})
        add_untested(id, kTooLarge);
    found_.explained_before = before_.explained();
    found_.pattern = pattern_lines();
    if (found_.findings.empty() && is_blank()) {
      const std::string line = nan_behind_keys(given_);
      if (!line.empty()) found_.pattern.push_back(line);
    }
    if (by_score_ && evidence_.excerpt == nullptr && found_.findings.empty() &&
        found_.arithmetic.empty()) {
      const ComparedPart& first = parts_.front();
      const std::string line = recovered_weights(evidence_, all_ ? all_->variant : base_,
                                                 first.rows.front(), first.queries.front());
      if (!line.empty()) found_.pattern.push_back(line);
    }
    return found_;
  }

 private:
  void sample() {
    const Matrices& view = evidence_.view;
    const std::vector<double> errors = row_errors(evidence_);
    std::vector<std::size_t> queries(given_in_.rows);
    const bool has_queries = by_score_ && view.R == queries.size();
    std::vector<std::size_t> rows(view.R);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
    std::size_t block = rows.size();
    if (has_queries) {
      const std::size_t of_query = std::max<std::size_t>(1, in_.B * in_.H * in_.S);
      const std::size_t count = std::clamp<std::size_t>(kSampledScores / of_query, 8, kMostQueries);
      const Window& window = in_.options.window;
      std::vector<std::size_t> edges;
      for (const std::size_t row : rows)
        for (const std::int64_t edge : {window.left, window.right})
          if (edge >= 0 && queries[row] == static_cast<std::size_t>(edge)) edges.push_back(row);
      rows = sampled_rows(errors, count, edges);
      block = std::max<std::size_t>(1, kScores / of_query);
    }
    found_.queries = rows.size(), found_.all_queries = view.R;
    for (std::size_t first = 0; first < rows.size();) {
      const std::size_t count =
          has_queries
              ? std::min(first == 0 ? std::min(block, kFirstQueries) : block, rows.size() - first)
              : rows.size();
      const std::vector<std::size_t> some(
          rows.begin() + static_cast<std::ptrdiff_t>(first),
          rows.begin() + static_cast<std::ptrdiff_t>(first + count));
      ComparedPart part;
      part.rows = some;
      for (const std::size_t row : some) part.queries.push_back(has_queries ? queries[row] : row);
      if (by_score_ && !has_queries) part.queries = queries;
      const auto in_part = [&](const Tensor& all) {
        return with_sampled_heads(taken(all, view, some));
      };
      part.result = in_part(evidence_.result), part.reference = in_part(evidence_.reference);
      if (evidence_.bounds != nullptr) part.bounds = in_part(*evidence_.bounds);
      add_part(std::move(part));
      first += count;
    }
  }

  /// Evaluates some heads of a large job.
  void choose_heads() {
    const Matrices& view = evidence_.view;
    if (evidence_.excerpt != nullptr) {
      sample_ = *evidence_.excerpt->heads;
    } else {
      if (saturating_product({in_.B, in_.H, in_.rows.size(), in_.S}) < kScoresOfAllHeads ||
          view.B != in_.B || view.H != in_.H || !can_choose_heads(base_))
        return;
      sample_ = sampled_heads(matrix_errors(evidence_), in_.B, in_.H, in_.G, elements_of_head(in_));
    }
    if (sample_.heads.empty()) return;
    all_ = Complete{base_, in_};
    base_ = with_chosen_heads(base_, sample_);
    in_ = make_inputs(base_);
    found_.heads = in_.B * in_.G, found_.all_heads = all_->in.B * all_->in.G;
  }

  /// The sampled items and heads of matrices (B, H, ...).
  Tensor with_sampled_heads(const Tensor& matrices) const {
    return has_all_heads() ? matrices_from(matrices, sample_.items, sample_.heads) : matrices;
  }

  /// Whether the evidence is of all heads, and base_ is not.
  bool has_all_heads() const { return all_ && evidence_.excerpt == nullptr; }

  std::vector<std::string> pattern_lines() const {
    const Inputs* const in = !by_score_ ? nullptr : all_ ? &all_->in : &in_;
    if (evidence_.excerpt != nullptr) return evidence_.excerpt->pattern->lines(in);
    Pattern pattern(evidence_.view);
    pattern.add(evidence_);
    return pattern.lines(in);
  }

  bool is_explained() const {
    return !found_.findings.empty() || !found_.arithmetic.empty() || is_blank();
  }

  /// Two mistakes at once, unless too few elements are wrong to tell which.
  void test_combined(const std::vector<Hypothesis>& all) {
    if (before_.outside < kFewestForPairs) {
      if (found_.untested.empty())
        found_.why_untested = "with only " + counted(before_.outside, "wrong element");
      found_.untested.emplace_back("pairs");
      return;
    }
    if (!is_explained()) test_pairs(all);
    if (named_) return;
    if (!is_explained()) test_scaled_result();
    if (!is_explained())
      with_limited_time(3, [&] {
        test_with_others("pairs with numbers that the result suggests",
                         [&] { test_fitted_scores(), test_fitted_masks(); });
      });
    if (!is_explained()) with_limited_time(2, [&] { test_more_pairs(all); });
    if (!is_explained())
      with_limited_time(1, [&] {
        test_with_others("pairs with a factor of the scores", [&] {
          if (!test_factors(true) && in_.H > 1) test_factors(false);
        });
      });
    name_scale(all);
    if (!is_explained()) attempt("pairs with another arrangement", [&] { test_arranged(); });
  }

  void add_untested(const std::string& what, const char* why) {
    found_.untested.push_back(what);
    if (found_.why_untested.empty()) found_.why_untested = why;
  }

  /// Replaces a pair with a factor of the scores by one with a hypothesis about the scale that
  /// explains as much.
  void name_scale(const std::vector<Hypothesis>& all) {
    std::vector<Finding>& fits = found_.findings;
    if (fits.empty() || fits.front().ids.back() != "scale.factor" || !reason_to_stop().empty())
      return;
    Pairs pairs;
    for (const Hypothesis& first : all)
      if (first.full_id() == fits.front().ids.front())
        for (const Hypothesis& second : all)
          if (second.group() == "scale") pairs.emplace_back(&first, &second);
    const std::vector<Finding> named = std::exchange(fits, {});
    test(pairs, "pairs");
    if (fits.empty() || fits.front().residual_after > kMuchLarger * named.front().residual_after)
      fits = named;
  }

  /// One mistake and a factor of the result, which shows in rows that the mistake does not change.
  void test_scaled_result() {
    const auto factor = common_row_factor();
    if (!factor || !by_score_ || evidence_.bounds == nullptr) return;
    const std::string claim = "the result multiplied by " + six_digits(*factor);
    if (evidence_.excerpt != nullptr) return add_untested("pairs with " + claim, kTooLarge);
    const auto divided = [&](const Tensor& tensor, double by) {
      return mapped(tensor, [&](double x) { return x / by; });
    };
    const Tensor result = divided(evidence_.result, *factor);
    const Tensor bounds = divided(*evidence_.bounds, std::abs(*factor));
    const Evidence of_job{
        evidence_.output,    result,        evidence_.reference, &bounds, evidence_.tolerance,
        evidence_.precision, evidence_.view};
    SearchLimits limits = limits_;
    if (limits.seconds) limits.seconds = std::max(0.0, *limits.seconds - seconds());
    const Diagnosis found = Search(given_, of_job, limits, false).run();
    found_.pairs += found.tested;
    if (!found.untested.empty() && found.findings.empty())
      add_untested("pairs with " + claim, found.why_untested.c_str());
    for (Finding finding : found.findings) {
      if (finding.ids.front().starts_with("values.factor")) continue;
      finding.ids.insert(finding.ids.begin(), "values.factor");
      finding.kernel = claim + " and " + finding.kernel;
      finding.residual_before = before_.rms(), finding.residual_after *= std::abs(*factor);
      finding.flags = "";
      found_.findings.push_back(std::move(finding));
    }
  }

  /// The factor other than 1 that most rows have, of those that are multiples of the job's.
  std::optional<double> common_row_factor() const {
    constexpr double kNear = 0.01;
    std::vector<double> factors;
    for (const ComparedPart& part : parts_) {
      const auto a = part.result.data<double>(), b = part.reference.data<double>();
      const std::size_t columns = std::max<std::size_t>(1, part.result.shape().back());
      for (std::size_t row = 0; row < a.size() && columns > 1; row += columns) {
        double ab = 0, bb = 0;
        for (std::size_t i = row; i < row + columns; ++i) ab += a[i] * b[i], bb += b[i] * b[i];
        const double factor = ab / bb;
        bool is_multiple = std::isfinite(factor) && std::abs(factor - 1) > kNear;
        for (std::size_t i = row; i < row + columns && is_multiple; ++i) {
          const double bound = part.bounds ? part.bounds->data<double>()[i]
                                           : bound_of(evidence_.tolerance, b[i], DType::f64);
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

  /// How many of these matrices (B, H, ...) each key/value head has.
  std::size_t matrices_of_head() const { return in_.G == 0 ? 0 : evidence_.view.H / in_.G; }

  /// The heads that represent all: those with the largest error and the smallest, and others at
  /// equal distances. Empty if these are all.
  std::vector<KvHead> few_heads() const {
    const std::size_t all = in_.B * in_.G,
                      of_head = saturating_product({in_.H / in_.G, in_.rows.size(), in_.S});
    const std::size_t count =
        std::max(kFewestHeads, kScoresOfHeads / std::max<std::size_t>(1, of_head));
    const Matrices& view = evidence_.view;
    if (count >= all || view.B != in_.B || view.H % in_.G != 0 || view.H == 0) return {};
    std::vector<double> errors(all);
    const std::vector<double> of_matrices = matrix_errors(evidence_);
    for (std::size_t i = 0; i < of_matrices.size(); ++i) {
      double& error = errors[i / matrices_of_head()];
      error = std::max(error, of_matrices[i]);
    }
    const std::vector<std::size_t> chosen = spread(errors, count);
    std::vector<KvHead> heads;
    for (const std::size_t i : chosen) heads.push_back({i / in_.G, i % in_.G});
    return heads;
  }

  void sample_heads() {
    const std::vector<KvHead> heads = few_heads();
    found_.heads = heads.size(), found_.all_heads = in_.B * in_.G;
    found_.queries = found_.all_queries = evidence_.view.R;
    const auto some = [&](const Tensor& tensor, const std::vector<KvHead>& of) {
      return with_heads(taken(tensor, evidence_.view), of);
    };
    for (const bool is_first : {true, false}) {
      ComparedPart part;
      part.heads =
          is_first ? std::vector(1, heads[0]) : std::vector(heads.begin() + 1, heads.end());
      part.result = some(evidence_.result, part.heads);
      part.reference = some(evidence_.reference, part.heads);
      if (evidence_.bounds != nullptr) part.bounds = some(*evidence_.bounds, part.heads);
      add_part(std::move(part));
    }
  }

  /// The matrices (B, H, ...) of these heads, (1, n, ...).
  Tensor with_heads(const Tensor& matrices, const std::vector<KvHead>& heads) const {
    if (heads.empty()) return matrices;
    const std::size_t each = matrices_of_head();
    const Shape& shape = matrices.shape();
    const std::size_t size = shape[2] * shape[3];
    Tensor result(DType::f64, {1, heads.size() * each, shape[2], shape[3]});
    double* out = result.mutable_data<double>().data();
    for (const KvHead& head : heads)
      out = std::copy_n(
          matrices.data<double>().data() + (head.item * shape[1] + head.head * each) * size,
          each * size, out);
    return result;
  }

  /// Fits the reference to a part, and keeps it.
  void add_part(ComparedPart part) {
    const Fit fitted = fit_of(part, part.reference, part.bounds ? &*part.bounds : nullptr);
    part.wrong = fitted.is_outside;
    if (parts_.empty()) first_before_ = fitted;
    before_.add(fitted);
    parts_.push_back(std::move(part));
  }

  Fit fit_of(const ComparedPart& part, const Tensor& values, const Tensor* bounds) const {
    return fit(part.result, values, bounds, evidence_.tolerance, evidence_.result.dtype(),
               part.wrong);
  }

  /// Whether the hypothesis may change this output.
  bool is_relevant(const Hypothesis& hypothesis) const {
    if (hypothesis.group() == "logsumexp") return output_ == Output::logsumexp;
    return by_score_ || backward_ || hypothesis.stage == Hypothesis::Stage::projection;
  }

  /// Why the search ends now; "" if it goes on.
  std::string reason_to_stop() const {
    if (limits_.stop != nullptr && *limits_.stop) return "because the search was stopped";
    const double passed = seconds();
    if (limits_.seconds && passed >= *limits_.seconds)
      return "within " + six_digits(kSearchSeconds) + " s; --diagnose tests all";
    if (end_ && passed >= *end_) return "for lack of time";
    return "";
  }

  /// Since the search began. A busy machine takes longer, but finds the same.
  double seconds() const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    const auto used = static_cast<double>(std::clock() - start_of_work_) / CLOCKS_PER_SEC;
    return std::min(passed.count(), used);
  }

  /// Calls a part of the search that ends after its share of the time that `left` parts have.
  template <class Part>
  void with_limited_time(int left, const Part& part) {
    const double now = seconds();
    end_ =
        now + std::clamp((kSecondsWithMorePairs - now) / left, kLeastSeconds, kSecondsForMorePairs);
    part();
    end_.reset();
  }

  bool is_over() {
    const std::string reason = reason_to_stop();
    if (!reason.empty()) found_.why_untested = reason;
    return !reason.empty();
  }

  /// Calls compute(i) for each i below `count`, in parallel if the job is large.
  void in_parallel(std::size_t count, const std::function<void(std::size_t)>& compute) const {
    constexpr std::size_t kLarge = std::size_t{1} << 18;
    const std::size_t rows = backward_ ? in_.rows.size() : by_score_ ? found_.queries : 0;
    run_in_parallel(count, in_.B * in_.H * in_.S * rows < kLarge ? 1 : kMostSearchThreads, compute);
  }

  /// The bounds of rounding before attention_only(), relative to its own.
  const Tensor& earlier_stages(ComparedPart& part) {
    if (part.of_earlier_stages) return *part.of_earlier_stages;
    Tensor ratio(DType::f64, part.result.shape());
    for (double& x : ratio.mutable_data<double>()) x = 1;
    const Evaluated base =
        evaluate(base_, *output_, part.queries, evidence_.precision, &base_errors_);
    if (base.bounds && base.bounds->shape() == ratio.shape())
      for (std::size_t i = 0; i < ratio.size(); ++i) {
        const double own = base.bounds->data<double>()[i], all = part.bounds->data<double>()[i];
        if (own > 0 && all > own) ratio.mutable_data<double>()[i] = all / own;
      }
    part.of_earlier_stages = ratio;
    return *part.of_earlier_stages;
  }

  /// A part of the changed variant; nullopt if its shape differs.
  std::optional<Evaluated> evaluated(const Variant& variant, ComparedPart& part, bool with_bounds,
                                     InputErrors* known = nullptr) {
    const Precision* precision = with_bounds ? evidence_.precision : nullptr;
    if (backward_) return evaluated_gradient(variant, part, with_bounds);
    Evaluated result = by_score_ ? evaluate(variant, *output_, part.queries, precision, known)
                                 : evaluate_given(variant, evidence_.output, precision);
    if (result.values.shape() != part.result.shape()) return std::nullopt;
    if (!with_bounds || !part.bounds) return result;
    if (!result.bounds) {
      result.bounds = part.bounds;
    } else if (by_score_) {
      const auto ratio = earlier_stages(part).data<double>();
      const auto out = result.bounds->mutable_data<double>();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] *= ratio[i];
    }
    return result;
  }

  /// The same for gradients, with the bounds of the job where these are larger than rows of this
  /// size have in the mean.
  std::optional<Evaluated> evaluated_gradient(const Variant& variant, const ComparedPart& part,
                                              bool with_bounds) const {
    Evaluated result;
    if (variant.is_attention_only) {
      const Tensor values =
          backward_->gradient(variant, part.heads.empty() ? nullptr : &part.heads);
      if (values.shape() != evidence_.result.shape()) return std::nullopt;
      result.values = with_heads(taken(values, evidence_.view), part.heads);
    } else {
      Variant changed = variant;
      changed.options.path = Path::automatic;  // the kernels keep no scores
      const Tensor values = evaluate_given(changed, evidence_.output, nullptr).values;
      if (values.size() != evidence_.result.size()) return std::nullopt;
      result.values = with_heads(values, part.heads);
      if (result.values.shape() != part.result.shape()) return std::nullopt;
    }
    if (with_bounds) add_bounds(part, result);
    return result;
  }

  void add_bounds(const ComparedPart& part, Evaluated& result) const {
    if (!part.bounds) return;
    const double size_of_reference = rms_of(part.reference);
    const double relative = size_of_reference > 0 ? rms_of(*part.bounds) / size_of_reference : 0;
    result.bounds = part.bounds;
    const std::size_t columns = std::max<std::size_t>(1, evidence_.view.C);
    const auto values = result.values.data<double>();
    const auto out = result.bounds->mutable_data<double>();
    for (std::size_t row = 0; row < out.size(); row += columns) {
      double squares = 0;
      for (const double x : values.subspan(row, columns)) squares += x * x;
      const double size = std::sqrt(squares / static_cast<double>(columns));
      for (std::size_t i = row; i < row + columns; ++i)
        out[i] = std::max(out[i], relative * std::max(size, std::abs(values[i])));
    }
  }

  /// Whether a changed job has more scores than may be in memory for its gradients.
  bool is_too_large(const Variant& variant) const {
    if (!backward_ || variant.is_attention_only) return false;
    Options options = variant.options;
    options.path = Path::automatic;
    const Inputs in = make_inputs({variant.tensors, options});
    return saturating_product({in.B, in.H, in.rows.size(), in.S}) > kMostKeptScores &&
           gradient_fallback_reason(in, {evidence_.output}) != nullptr;
  }

  /// Whether values without bounds may explain the first part: wide bounds from those of the job.
  bool is_possible(const ComparedPart& part, const Tensor& values, double rms) const {
    const auto a = part.result.data<double>(), b = values.data<double>();
    std::size_t outside = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double bound = part.bounds ? part.bounds->data<double>()[i]
                                       : bound_of(evidence_.tolerance, b[i], DType::f64);
      outside += is_within(a[i], b[i], 32 * bound + 0.02 * (rms + std::abs(b[i]))) ? 0 : 1;
    }
    return outside * 10 <= a.size();
  }

  static double rms_of(const Tensor& tensor) {
    double squares = 0;
    for (const double x : tensor.data<double>())
      if (std::isfinite(x)) squares += x * x;
    return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, tensor.size())));
  }

  /// If the variant hides all keys from queries that see some in the job, the job does not say what
  /// their results are: those that fit best, NaN or the mean of all values instead of 0.
  void adapt_empty_rows(Variant& variant, ComparedPart& part, Evaluated& found) {
    if (!by_score_ || !variant.is_attention_only) return;
    const auto a = found.values.data<double>(), right = part.reference.data<double>();
    const std::size_t columns = std::max<std::size_t>(1, found.values.shape().back());
    const auto is_zero = [](double x) { return x == 0; };
    bool has_empty = false;
    for (std::size_t row = 0; row < a.size() && !has_empty; row += columns) {
      const auto x = a.subspan(row, columns), y = right.subspan(row, columns);
      has_empty =
          std::all_of(x.begin(), x.end(), is_zero) && std::none_of(y.begin(), y.end(), is_zero);
    }
    if (!has_empty || in_.options.empty_rows != EmptyRows::zero) return;
    const Fit zero = fit_of(part, found.values, nullptr);
    for (const EmptyRows other : {EmptyRows::nan, EmptyRows::uniform}) {
      Variant changed = variant;
      changed.options.empty_rows = other;
      const auto again = evaluated(changed, part, false);
      if (!again) continue;
      const Fit fitted = fit_of(part, again->values, nullptr);
      const bool is_better = other == EmptyRows::nan ? fitted.outside < zero.outside
                                                     : fitted.squares < 0.5 * zero.squares;
      if (!is_better) continue;
      variant.options.empty_rows = other, found = *again;
      return;
    }
  }

  /// Whether the errors are larger than explains() and find_smaller_errors() accept: then bounds,
  /// which take longer, need not be known.
  bool leaves_too_much(const Variant& variant, const Fit& first) {
    const double before =
        first_before_.wrong_squares;  // 0 if all wrong elements are NaN in the job
    if (before > 0 && 2 * first.wrong_squares > before) return true;
    if (!named_) return false;
    if (first.rms() > kSlightlyLarger * named_->first_rms) return true;
    Fit all = first;
    for (std::size_t k = 1; k < parts_.size(); ++k) {
      const auto result = evaluated(variant, parts_[k], false);
      if (!result) return true;
      all.add(fit_of(parts_[k], result->values, nullptr));
    }
    return kMuchLarger * all.rms() > named_->rms;
  }

  /// Evaluates the variant until it is known not to explain the result.
  void judge(Variant variant, Candidate& candidate) {
    std::size_t all = 0;
    for (const ComparedPart& part : parts_) all += part.result.size();
    InputErrors known;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      ComparedPart& part = parts_[k];
      std::optional<Evaluated> result;
      if (k == 0) {
        auto values = evaluated(variant, part, false);
        if (!values) return;
        adapt_empty_rows(variant, part, *values);
        candidate.first = fit_of(part, values->values, nullptr);
        if (!is_possible(part, values->values, rms_of(part.result))) return;
        if (leaves_too_much(variant, candidate.first)) return;
        if (backward_) result = values, add_bounds(part, *result);
      }
      if (!result && backward_) {
        result = evaluated(variant, part, true);
      } else if (!result) {
        const std::lock_guard lock(bounds_mutex_);
        result = evaluated(variant, part, true, &known);
      }
      if (!result) return;
      candidate.fit.add(fit_of(part, result->values, result->bounds ? &*result->bounds : nullptr));
      if (static_cast<double>(candidate.fit.outside) > (1 - kExplained) * static_cast<double>(all))
        return;
    }
    candidate.complete = true;
  }

  /// The job with the changes of one hypothesis or two; from its queries, keys and values on, and
  /// with the sampled heads, if the output depends on scores.
  struct Changed {
    Variant variant;
    std::vector<Claim> claims = {};  ///< of the hypotheses that apply
    bool too_large = false;
  };

  /// The first hypothesis may be of an earlier stage than the second one. Errors: data, if the
  /// changed job is not valid.
  Changed changed(const Hypothesis& first, const Hypothesis* second = nullptr) const {
    if (all_ && second != nullptr && second->reads_all_heads() && !first.reads_all_heads() &&
        first.stage == second->stage) {  // before heads are chosen
      Changed result = changed(*second, &first);
      if (result.claims.size() == 2) std::swap(result.claims[0], result.claims[1]);
      return result;
    }
    bool projects = first.stage == Hypothesis::Stage::projection;
    bool has_all = all_ && (projects || first.reads_all_heads());
    Changed result{projects ? given_ : has_all ? all_->variant : base_};
    Variant& variant = result.variant;
    const auto apply = [&](const Hypothesis& hypothesis, const Inputs& in) {
      const auto claim = hypothesis.apply(variant, in);
      if (claim) result.claims.push_back(*claim);
      result.too_large = claim && (claim->too_large || is_too_large(variant));
      return claim && !result.too_large;
    };
    const auto project = [&] {
      if (std::exchange(projects, false) && by_score_) variant = attention_only(variant);
    };
    const auto choose = [&] {
      if (!projects && std::exchange(has_all, false)) variant = with_chosen_heads(variant, sample_);
    };
    if (!apply(first, projects ? given_in_ : has_all ? all_->in : in_)) return result;
    if (second != nullptr) {
      if (second->stage == Hypothesis::Stage::attention) project();
      if (!second->reads_all_heads()) choose();
      if (!apply(*second, make_inputs(variant))) return result;
    }
    project();
    choose();
    return result;
  }

  /// A hypothesis that was tested, or the reason why not. Neither if it does not apply.
  struct Tested {
    std::optional<Candidate> candidate;
    std::string why_untested;
  };

  Tested test(const Hypothesis& hypothesis) {
    Candidate candidate;
    candidate.hypothesis = &hypothesis;
    try {
      if (hypothesis.is_slow())
        if (std::string reason = reason_to_stop(); !reason.empty()) return {{}, reason};
      const Changed job = changed(hypothesis);
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

  void test_all(const std::vector<Hypothesis>& all) {
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    if (!limits_.seconds)  // the slow ones first, beside which another thread tests the others
      std::stable_partition(order.begin(), order.end(),
                            [&](std::size_t i) { return all[i].is_slow(); });
    std::vector<Tested> tested(all.size());
    in_parallel(all.size(), [&](std::size_t k) {
      const std::size_t i = order[k];
      if (is_relevant(all[i])) tested[i] = test(all[i]);
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

  /// Whether a hypothesis about gradients has the result of an earlier one that says the same: less
  /// of it, or that both passes have this mistake.
  bool has_same_result(const Candidate& candidate) const {
    const Hypothesis& b = *candidate.hypothesis;
    return backward_ &&
           std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
             const Hypothesis& a = *other.hypothesis;
             return (a.id == b.id || (a.group() == "backward" && b.group() == "backward")) &&
                    other.first.squares == candidate.first.squares &&
                    other.first.outside == candidate.first.outside;
           });
  }

  /// A bound may be so wide that it holds for any result, so the errors must become smaller, too,
  /// unless they are NaN in the job or in the result.
  bool explains(const Candidate& candidate) const {
    const Fit& after = candidate.fit;
    const bool are_smaller =
        before_.wrong_squares == 0 || (after.squares <= kSlightlyLarger * before_.squares &&
                                       4 * after.wrong_squares <= before_.wrong_squares);
    return candidate.complete && are_smaller && after.explained() >= kExplained &&
           10 * after.outside <= before_.outside;
  }

  Finding finding_of(const std::string& id, const Candidate& candidate) const {
    Finding finding;
    finding.ids = {id};
    finding.kernel = candidate.claim.kernel, finding.job = candidate.claim.job;
    if (candidate.claim.is_flag) finding.flags = flags_in(candidate.claim.kernel);
    set_fit(finding, candidate.fit);
    return finding;
  }

  void set_fit(Finding& finding, const Fit& fitted) const {
    finding.explained = fitted.explained();
    finding.residual_before = before_.rms(), finding.residual_after = fitted.rms();
  }

  /// Keeps those that explain as much as the best, with errors about as small.
  void name_the_best() {
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
    for (const Candidate* candidate : fitting)
      if (outside(*candidate) <= 3 * fewest && rms(*candidate) <= 2 * smallest)
        found_.findings.push_back(finding_of(candidate->hypothesis->full_id(), *candidate));
    if (found_.findings.empty())
      found_.findings.push_back(
          finding_of(fitting.front()->hypothesis->full_id(), *fitting.front()));
    std::stable_sort(
        found_.findings.begin(), found_.findings.end(),
        [](const Finding& a, const Finding& b) { return a.residual_after < b.residual_after; });
  }

  /// Whether the errors themselves are smaller, and do not only fit into wide bounds.
  bool is_smaller(const Fit& after) const { return 2 * after.rms() <= before_.rms(); }

  void add_arrangements() {
    std::vector<Arrangement> matching;
    if (const Excerpt* excerpt = evidence_.excerpt) {
      matching = matching_arrangements(*excerpt->some_rows);
    }
    if (matching.empty()) matching = matching_arrangements(evidence_);
    for (const Arrangement& arrangement : matching) {
      if (!is_smaller(arrangement.fit)) continue;
      Finding finding;
      finding.ids = {arrangement.id};
      finding.kernel = arrangement.kernel;
      finding.explained = arrangement.fit.explained();
      finding.residual_before = before_.rms(), finding.residual_after = arrangement.fit.rms();
      found_.findings.push_back(std::move(finding));
    }
  }

  /// Whether the errors that a finding leaves are larger than those of stored numbers, and bounds
  /// so wide that other numbers may fit better.
  bool may_be_another(const Finding& finding) const {
    constexpr double kWide = 1e-4;
    return evidence_.precision != nullptr && evidence_.precision->result > kWide &&
           finding.residual_after > 0.9 * evidence_.precision->result * reference_rms();
  }

  /// Whether all wrong elements are 0, or all are NaN: nobody wrote them, or not yet.
  bool is_blank() const {
    bool zeros = true, nans = true;
    for (const ComparedPart& part : parts_) {
      const auto elements = part.result.data<double>();
      for (std::size_t i = 0; i < elements.size(); ++i)
        if (part.wrong[i]) zeros &= elements[i] == 0, nans &= std::isnan(elements[i]);
    }
    return zeros || nans;
  }

  /// Whether the same holds for all elements: then no finding says more.
  bool is_blank_everywhere() const {
    return std::all_of(parts_.begin(), parts_.end(), [](const ComparedPart& part) {
      const auto elements = part.result.data<double>();
      return std::all_of(elements.begin(), elements.end(),
                         [](double x) { return x == 0 || std::isnan(x); });
    });
  }

  /// Calls a part of the search, which finds nothing if its jobs are not valid or too large.
  void attempt(const char* name, const std::function<void()>& search) {
    try {
      search();
    } catch (const Error&) {
    } catch (const std::bad_alloc&) {
      found_.why_untested = kTooLarge;
      found_.untested.emplace_back(name);
    }
  }

  /// Calls a part of the search, unless something was found that leaves the errors of stored
  /// numbers. Keeps what it finds if that leaves much smaller errors than what was found before.
  void find_smaller_errors(const std::function<void()>& search) {
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

  /// Infinite if it is not that of a hypothesis alone.
  double rms_in_first_part(const Finding& finding) const {
    for (const Candidate& candidate : candidates_)
      if (finding.ids == std::vector{candidate.hypothesis->full_id()}) return candidate.first.rms();
    return HUGE_VAL;
  }

  /// Hypotheses with numbers that the result suggests.
  void test_fitted() {
    constexpr const char* kPart = "numbers that the result suggests";
    if (is_over())
      found_.untested.emplace_back(kPart);
    else
      attempt(kPart, [&] { test_fits(); });
  }

  void test_fits() {
    test_fitted_scores();
    test_fitted_masks();
    if (!test_factors(true) && in_.H > 1) test_factors(false);
  }

  /// Whether factors of the scores, one for each head or one for all, explain the result.
  bool test_factors(bool is_common) {
    if (in_.options.score != Score::dot) return false;
    const auto factors = fitted_factors(is_common);
    return factors &&
           test_fit(is_common ? "scale.factor" : "scale.factor_of_each_head",
                    [&](Variant& variant) { return with_factors(variant, in_, *factors); });
  }

  /// Scores of hidden keys, to two digits if these suffice.
  void test_fitted_scores() {
    constexpr std::pair<const char*, RowChange> kChanges[] = {
        {"mask.set_number", RowChange::hidden_set},
        {"mask.added_number", RowChange::hidden_added},
        {"mask.set_number_before_bias", RowChange::hidden_set_biased}};
    if (output_ != Output::context && output_ != Output::head_context) return;
    for (const auto& [id, change] : kChanges) {
      Variant applies = base_;
      if (!with_hidden_scores(applies, in_, change, 0)) continue;
      const ComparedPart& part = parts_.front();
      const auto number = fitted_score(base_, change, part.queries, part.result);
      if (!number) continue;
      const double digit = std::pow(10, std::floor(std::log10(std::abs(*number))) - 1);
      for (const double tried : {std::round(*number / digit) * digit, *number})
        if (test_fit(id, [&, change = change](Variant& variant) {
              return with_hidden_scores(variant, in_, change, tried);
            }))
          break;
    }
  }

  /// The queries of all heads and items whose rows are not within their bounds, in order; of the
  /// sample if the job has another change.
  std::vector<std::size_t> sorted_queries_that_differ() {
    std::set<std::size_t> queries;
    if (has_other_change_) {
      for (ComparedPart& part : parts_) {
        const auto found = evaluated(base_, part, true);
        if (!found) return {};
        const Fit fitted = fit_of(part, found->values, found->bounds ? &*found->bounds : nullptr);
        const Shape& shape = part.result.shape();
        for (std::size_t i = 0; i < fitted.is_outside.size(); ++i)
          if (fitted.is_outside[i]) queries.insert(part.queries[i / shape[3] % shape[2]]);
      }
      return {queries.begin(), queries.end()};
    }
    const std::vector<double> errors = row_errors(evidence_);
    if (errors.size() != given_in_.rows.size()) return {};
    for (std::size_t r = 0; r < errors.size(); ++r)
      if (errors[r] > 1) queries.insert(given_in_.rows[r]);
    return {queries.begin(), queries.end()};
  }

  /// A window, keys beside it, and a prefix.
  void test_fitted_masks() {
    constexpr std::int64_t kMostKeys = 256;
    const auto queries = sorted_queries_that_differ();
    const auto offset = common_offset(in_);
    if (!offset || queries.empty()) return;
    const auto test = [&](const char* id, std::int64_t from, std::int64_t to,
                          std::optional<Claim> (*change)(Variant&, const Inputs&, std::int64_t)) {
      if (const auto number = fitted_number(from, to, change))
        test_fit(id, [&](Variant& variant) { return change(variant, in_, *number); });
    };
    // The first row that differs has one key more, and the last row that lacks keys of the prefix
    // two keys less, but keys with small weights do not show in low precisions.
    const std::int64_t left = *offset + static_cast<std::int64_t>(queries.front()) - 1;
    test("window.added", left, left / 4, with_added_window);
    test("window.first_keys", 1, kMostKeys, with_first_keys);
    const std::int64_t prefix = *offset + static_cast<std::int64_t>(queries.back()) + 2;
    test("causal.prefix", prefix, std::min(2 * prefix, static_cast<std::int64_t>(in_.P + in_.N)),
         with_prefix);
  }

  /// The number from `from` to `to` with the smallest errors of the first part.
  std::optional<std::int64_t> fitted_number(std::int64_t from, std::int64_t to,
                                            std::optional<Claim> (*change)(Variant&, const Inputs&,
                                                                           std::int64_t)) {
    std::optional<std::int64_t> best;
    double least = HUGE_VAL;
    const std::int64_t low = std::min(from, to), high = std::max(from, to),
                       sign = from < to ? 1 : -1;
    const auto consider = [&](std::int64_t number) {
      Variant variant = base_;
      if (number < low || number > high) return true;
      const auto claim = change(variant, in_, number);
      if (!claim || claim->too_large) return false;
      const auto values = evaluated(variant, parts_.front(), false);
      if (!values) return false;
      const double squares = fit_of(parts_.front(), values->values, nullptr).squares;
      if (squares < least) least = squares, best = number;
      return true;
    };
    std::int64_t step = 1;
    for (std::int64_t distance = 0; distance <= high - low; distance += step) {
      if (is_over() || !consider(from + sign * distance)) return std::nullopt;
      if (distance >= 8 * step) step *= 2;
    }
    if (!best) return std::nullopt;
    for (step = std::max<std::int64_t>(1, std::abs(from - *best) / 8); step > 0; step /= 2)
      for (const std::int64_t number : {*best - step, *best + step}) consider(number);
    return best;
  }

  /// Whether it explains the result.
  bool test_fit(const char* id, const std::function<std::optional<Claim>(Variant&)>& change) {
    try {
      Variant variant = base_;
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

  /// The squares of the errors of each head in the first part, with these factors of its scores.
  std::vector<double> squares_with(const std::vector<double>& factors) {
    ComparedPart& part = parts_.front();
    Variant variant = base_;
    with_factors(variant, in_, factors);
    const auto evaluated_part = evaluated(variant, part, false);
    if (!evaluated_part) return std::vector<double>(in_.H, HUGE_VAL);
    std::vector<double> squares(in_.H);
    const auto a = part.result.data<double>(), b = evaluated_part->values.data<double>();
    const std::size_t of_head = part.result.shape()[2] * part.result.shape()[3];
    for (std::size_t i = 0; i < a.size(); ++i)
      if (std::isfinite(a[i]) && std::isfinite(b[i]))
        squares[i / of_head % in_.H] += (a[i] - b[i]) * (a[i] - b[i]);
    return squares;
  }

  /// For each head, or for all, the factor of the scores that leaves the smallest errors in the
  /// first part: the best of a grid, and then a golden section search. nullopt if none makes the
  /// errors much smaller.
  std::optional<std::vector<double>> fitted_factors(bool is_common) {
    if (parts_.front().result.shape()[1] != in_.H && !is_common) return std::nullopt;
    const auto summed = [&](std::vector<double> squares) {
      const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
      if (is_common) std::fill(squares.begin(), squares.end(), sum);
      return squares;
    };
    const auto squares_at = [&](const std::vector<double>& factors) {
      return summed(squares_with(factors));
    };
    constexpr int kSteps = 12, kSections = 48, kRoughSections = 20;
    constexpr double kGolden = 0.6180339887498949;
    const double step = std::numbers::sqrt2;
    for (int k = -kSteps; k <= kSteps && squares_of_grid_.size() <= 2 * kSteps; ++k) {
      if (is_over()) return std::nullopt;
      squares_of_grid_.push_back(squares_with(std::vector<double>(in_.H, std::pow(step, k))));
    }
    const std::vector<double> before = summed(squares_of_grid_[kSteps]);
    std::vector<double> best(in_.H, 1.0), least(in_.H, HUGE_VAL);
    for (int k = -kSteps; k <= kSteps; ++k) {
      const std::vector<double> squares = summed(squares_of_grid_[kSteps + k]);
      for (std::size_t h = 0; h < in_.H; ++h)
        if (squares[h] < least[h]) least[h] = squares[h], best[h] = std::pow(step, k);
    }
    // Only a factor near 1 may be far from all of the grid, in comparison.
    for (std::size_t h = 0; h < in_.H; ++h)
      if (std::abs(std::log2(best[h])) > 0.75 && 2 * least[h] > before[h]) return std::nullopt;
    std::vector<double> low(in_.H), high(in_.H), left(in_.H), right(in_.H);
    for (std::size_t h = 0; h < in_.H; ++h) {
      low[h] = best[h] / step, high[h] = best[h] * step;
      left[h] = high[h] - kGolden * (high[h] - low[h]);
      right[h] = low[h] + kGolden * (high[h] - low[h]);
    }
    std::vector<double> at_left = squares_at(left), at_right = squares_at(right);
    for (int section = 0; section < kSections; ++section) {
      std::vector<double> next(in_.H);
      std::vector<bool> goes_left(in_.H);
      for (std::size_t h = 0; h < in_.H; ++h) {
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
      for (std::size_t h = 0; h < in_.H; ++h) (goes_left[h] ? at_left : at_right)[h] = squares[h];
      if (section == kRoughSections && !are_small(at_left, at_right, before)) return std::nullopt;
    }
    if (!are_small(at_left, at_right, before)) return std::nullopt;
    for (std::size_t h = 0; h < in_.H; ++h) best[h] = (low[h] + high[h]) / 2;
    return best;
  }

  /// Whether the smaller ones of a and b are small, in sum, in comparison with those of before.
  static bool are_small(const std::vector<double>& a, const std::vector<double>& b,
                        const std::vector<double>& before) {
    double after = 0;
    for (std::size_t h = 0; h < a.size(); ++h) after += std::min(a[h], b[h]);
    return 16 * after <= std::accumulate(before.begin(), before.end(), 0.0);
  }

  /// Of the finite elements of all parts.
  double reference_rms() const {
    double squares = 0, count = 0;
    for (const ComparedPart& part : parts_)
      for (const double value : part.reference.data<double>())
        if (std::isfinite(value)) squares += value * value, ++count;
    return count > 0 ? std::sqrt(squares / count) : 0;
  }

  /// Whether each row is that of a query or key, and not a sum over all of them, as in the
  /// gradients of parameters.
  bool has_rows_of_tokens() const {
    const Gradient* gradient = std::get_if<Gradient>(&evidence_.output);
    if (gradient == nullptr) return true;
    const AxisList axes = gradient_axes(gradient->of, given_in_);
    if (axes.contains(Axis::L)) return evidence_.view.R == given_in_.L;
    return std::any_of(axes.begin(), axes.end(),
                       [](Axis axis) { return axis == Axis::N || axis == Axis::P; });
  }

  /// Whether rounding may cause the errors: nearly all rows are wrong, by about the same share of
  /// their numbers. A mistake in some heads, items or rows is not like this, but in sums over all
  /// queries it may be.
  bool is_like_rounding() const {
    if (!has_rows_of_tokens()) return false;
    const std::vector<double> errors = row_errors(evidence_);
    const auto wrong = std::count_if(errors.begin(), errors.end(), [](double x) { return x > 1; });
    if (2 * static_cast<std::size_t>(wrong) < errors.size()) return false;
    std::vector<double> shares;  // of rows of each item and head
    for (const ComparedPart& part : parts_) {
      const auto a = part.result.data<double>(), b = part.reference.data<double>();
      const std::size_t columns = std::max<std::size_t>(1, part.result.shape().back());
      for (std::size_t row = 0; row < a.size(); row += columns) {
        double of_error = 0, of_row = 0;
        for (std::size_t i = row; i < row + columns; ++i)
          if (std::isfinite(a[i]) && std::isfinite(b[i]))
            of_error += (a[i] - b[i]) * (a[i] - b[i]), of_row += b[i] * b[i];
        if (of_row > 0) shares.push_back(std::sqrt(of_error / of_row));
      }
    }
    if (shares.empty()) return false;
    std::sort(shares.begin(), shares.end());
    const double median = shares[(shares.size() - 1) / 2],
                 most = shares[shares.size() * 999 / 1000];
    return most <= kMostUneven * median;
  }

  /// Weights that are rounded to 8 bits, recomputed with their rounding errors. A number between
  /// two of them may be rounded to the other one, which changes its row.
  void test_rounded_weights() {
    if (evidence_.precision == nullptr || is_over() || !may_count_hidden_keys(base_, in_) ||
        (output_ != Output::context && output_ != Output::head_context) ||
        base_.has(Input::dropout_mask))
      return;
    constexpr double kMostRows = 0.9;
    std::vector<WeightRounding> left = weight_roundings();
    std::vector<Fit> fits(left.size());
    for (ComparedPart& part : parts_) {
      if (left.empty()) return;
      const Tensor scores = evaluate(base_, Output::masked_scores, part.queries, nullptr).values;
      for (std::size_t i = left.size(); i-- > 0;) {
        const Tensor context = context_with(left[i], scores, base_);
        if (context.shape() == part.result.shape())
          fits[i].add(fit_of(part, context, part.bounds ? &*part.bounds : nullptr));
        if (fits[i].elements > 0 && fits[i].explained() >= kMostRows) continue;
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
        fits.erase(fits.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    std::size_t best = left.size();
    for (std::size_t i = left.size(); i-- > 0;)
      if (10 * fits[i].outside <= before_.outside && 3 * fits[i].rms() <= before_.rms() &&
          (best == left.size() || fits[i].rms() <= fits[best].rms()))
        best = i;
    if (best < left.size()) found_.arithmetic = left[best].text();
  }

  /// Queries and keys that are rounded to bfloat16 for the scores, recomputed with their rounding
  /// errors. After a rotation, few may be rounded to the other of two numbers, which changes the
  /// context of all queries a little.
  void test_rounded_factors() {
    if (evidence_.precision == nullptr || is_over() || !by_score_ ||
        base_.options.score != Score::dot || base_.options.bf16_scores)
      return;
    Variant rounded = base_;
    for (const Input input : {Input::Q, Input::K, Input::past_K})
      if (const Tensor* tensor = base_.find(input))
        rounded.set(input, cast(rounded_to_bf16(*tensor), DType::f64));
    Fit total;
    for (ComparedPart& part : parts_) {
      const Tensor values = evaluate(rounded, *output_, part.queries, nullptr).values;
      if (values.shape() != part.result.shape()) return;
      total.add(fit_of(part, values, part.bounds ? &*part.bounds : nullptr));
    }
    const bool leaves_few = 10 * total.outside <= before_.outside;
    if ((leaves_few ? 3 : 10) * total.rms() <= before_.rms())
      found_.arithmetic = "scores of bf16 factors (compute: bf16)";
  }

  /// The lower precisions whose errors these may be: within their bounds, and of their size.
  void test_arithmetic(const std::vector<std::string>& names, bool sums) {
    if (evidence_.precision == nullptr || !(by_score_ || backward_) || !is_like_rounding()) return;
    for (const std::string& name : names) {
      if (backward_ && is_over()) {  // these bounds take long
        found_.untested.emplace_back("arithmetic");
        return;
      }
      const Precision other = *precision_named(name);
      const Precision tried = sums ? with_sums_in(*evidence_.precision, other) : other;
      const Precision& own = *evidence_.precision;
      if (sums ? tried.sum <= own.sum : std::max(tried.factor, tried.sum) <= own.factor) continue;
      // Bounds for the worst case can be as large as the values, and then contain any mistake.
      const double limit =
          sums ? std::min(32 * tried.sum, 0.05) : 8 * std::max(tried.factor, tried.sum);
      if (before_.rms() > limit * reference_rms()) continue;
      Fit total;
      InputErrors known;
      std::optional<Tensor> whole;  // bounds of a gradient
      try {
        for (ComparedPart& part : parts_) {
          if (by_score_) {
            const Evaluated base = evaluate(base_, *output_, part.queries, &tried, &known);
            if (!base.bounds) return;
            total.add(fit_of(part, part.reference, &*base.bounds));
            continue;
          }
          if (part.bounds && !whole)
            whole = taken(expected_error(evidence_.output, given_in_, tried), evidence_.view);
          if (!whole) return;
          const Tensor bounds = with_heads(*whole, part.heads);
          total.add(fit_of(part, part.reference, &bounds));
        }
      } catch (const Error&) {  // inputs that overflow this precision
        continue;
      }
      if (total.explained() < kExplained || 10 * total.outside > before_.outside) continue;
      if (!found_.arithmetic.empty()) found_.arithmetic += " or ";
      found_.arithmetic += sums ? "sums in " + name : name;
      return;
    }
  }

  /// Of large jobs, hypotheses that are slow are tested alone only.
  bool is_too_slow(const Hypothesis& hypothesis) const {
    return hypothesis.is_slow() && by_score_ && in_.B * in_.H * in_.S > kSampledScores / in_.L;
  }

  /// Those that reduce the error most come first.
  std::vector<const Candidate*> ranked_candidates() const {
    std::vector<const Candidate*> best;
    for (const Candidate& candidate : candidates_)
      if (candidate.first.finite > 0 && !is_too_slow(*candidate.hypothesis))
        best.push_back(&candidate);
    std::stable_sort(best.begin(), best.end(), [](const Candidate* a, const Candidate* b) {
      return a->first.rms() < b->first.rms();
    });
    return best;
  }

  /// Adds a pair of hypotheses that may be combined, unless it is among those that were tested.
  void add_pair(const Hypothesis* a, const Hypothesis* b, Pairs& pairs) {
    if (a->group() == b->group() && a->group() != "window" && a->group() != "rotary" &&
        a->group() != "backward")
      return;
    if (backward_ && (a->stage != b->stage || a->pass != Hypothesis::Pass::both ||
                      b->pass != Hypothesis::Pass::both))
      return;
    if (a->stage == Hypothesis::Stage::attention && b->stage == Hypothesis::Stage::projection)
      std::swap(a, b);
    if (a != b && tested_pairs_.insert({a, b}).second) pairs.emplace_back(a, b);
  }

  /// Pairs of the hypotheses that reduce the error most, then these with all others.
  void test_pairs(const std::vector<Hypothesis>& all) {
    const std::vector<const Candidate*> best = ranked_candidates();
    Pairs pairs;
    for (std::size_t i = 0; i < std::min<std::size_t>(6, best.size()); ++i)
      for (std::size_t j = 0; j < i; ++j) add_pair(best[j]->hypothesis, best[i]->hypothesis, pairs);
    for (std::size_t i = 0; i < std::min<std::size_t>(3, best.size()); ++i)
      for (const Hypothesis& other : all)
        if (is_relevant(other) && !is_too_slow(other)) add_pair(best[i]->hypothesis, &other, pairs);
    test(pairs, "pairs");
  }

  /// All other pairs, as far as time allows. Alone, each of two mistakes may even enlarge the
  /// error.
  void test_more_pairs(const std::vector<Hypothesis>& all) {
    if (backward_) return;
    Pairs pairs;
    for (const Candidate* one : ranked_candidates())
      for (const Hypothesis& other : all)
        if (is_relevant(other) && !is_too_slow(other)) add_pair(one->hypothesis, &other, pairs);
    test(pairs, "more pairs");
  }

  void test(const Pairs& pairs, const char* name) {
    std::vector<TestedPair> tested(pairs.size());
    in_parallel(pairs.size(), [&](std::size_t i) {
      if (reason_to_stop().empty())
        tested[i] = test_pair(*pairs[i].first, *pairs[i].second);
      else
        tested[i].is_skipped = true;
    });
    const bool some_skipped = std::any_of(tested.begin(), tested.end(),
                                          [](const TestedPair& pair) { return pair.is_skipped; });
    if (some_skipped && is_over()) found_.untested.emplace_back(name);
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

  /// Numbers that the result suggests if it also has another mistake, as far as time allows.
  void test_with_others(const char* name, const std::function<void()>& fits) {
    if (!by_score_) return;
    for (const Candidate* candidate : ranked_candidates()) {
      if (is_over()) return void(found_.untested.emplace_back(name));
      attempt(name, [&] { test_with(*candidate, name, fits); });
      if (!found_.findings.empty()) return;
    }
  }

  void test_with(const Candidate& candidate, const char* name, const std::function<void()>& fits) {
    const Hypothesis& hypothesis = *candidate.hypothesis;
    Changed job = changed(hypothesis);
    if (job.claims.empty() || job.too_large) return;
    Variant& variant = job.variant;
    Inputs in = make_inputs(variant);
    if (evidence_.precision != nullptr)
      for (ComparedPart& part : parts_)
        if (part.bounds) earlier_stages(part);  // those of the job itself
    std::vector<std::vector<double>> squares;
    const auto exchange = [&] {
      std::swap(base_, variant), std::swap(in_, in), std::swap(squares_of_grid_, squares);
      has_other_change_ = !has_other_change_;
    };
    exchange();
    attempt(name, fits);
    exchange();
    for (Finding& finding : found_.findings) {
      finding.ids.insert(finding.ids.begin(), hypothesis.full_id());
      finding.kernel = with_job(job.claims[0]) + " and " + finding.kernel;
      finding.flags = "";
    }
  }

  /// Hypotheses whose results are arranged in another way, if the sample has all queries.
  void test_arranged() {
    if (!by_score_ || all_ || found_.queries != given_in_.rows.size()) return;
    const Tensor result = taken(evidence_.result, evidence_.view);
    const Shape& shape = result.shape();
    const Matrices view = contiguous(shape);
    for (const Candidate& candidate : candidates_) {
      if (is_over()) {
        found_.untested.emplace_back("pairs with another arrangement");
        return;
      }
      try {
        const Changed job = changed(*candidate.hypothesis);
        if (job.claims.empty() || job.too_large) continue;
        const Evaluated result_of_job =
            evaluate(job.variant, *output_, given_in_.rows, evidence_.precision);
        if (result_of_job.values.shape() != shape) continue;
        const Evidence other{evidence_.output,
                             result,
                             result_of_job.values,
                             result_of_job.bounds ? &*result_of_job.bounds : nullptr,
                             evidence_.tolerance,
                             evidence_.precision,
                             view};
        ++found_.pairs;
        for (const Arrangement& arrangement : matching_arrangements(other)) {
          if (!is_smaller(arrangement.fit)) continue;
          Finding finding = finding_of(std::string(candidate.hypothesis->id), candidate);
          finding.ids.push_back(arrangement.id);
          finding.kernel += (finding.job.empty() ? "" : " (the job has " + finding.job + ")") +
                            " and " + arrangement.kernel;
          finding.job = finding.flags = "";
          set_fit(finding, arrangement.fit);
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

  TestedPair test_pair(const Hypothesis& a, const Hypothesis& b) {
    try {
      const Changed job = changed(a, &b);
      if (job.claims.size() < 2 || job.too_large) return {};
      const Claim &first = job.claims[0], &second = job.claims[1];
      Candidate candidate;
      candidate.hypothesis = &a;
      judge(job.variant, candidate);
      if (!explains(candidate)) return {false, true, std::nullopt};
      Finding finding;
      finding.ids = {std::string(a.id), std::string(b.id)};
      finding.kernel = with_job(first) + " and " + with_job(second);
      if (first.is_flag && second.is_flag)
        finding.flags = flags_in(first.kernel) + " " + flags_in(second.kernel);
      set_fit(finding, candidate.fit);
      return {false, true, finding};
    } catch (const Error&) {  // the changed job is not valid
      return {};
    } catch (const std::bad_alloc&) {
      return {};
    }
  }

  /// The job with all heads.
  struct Complete {
    Variant variant;
    Inputs in;
  };

  Variant given_, base_;
  bool has_other_change_ = false;  ///< base_ is not the job itself
  std::optional<Complete> all_;    ///< of base_, if that has the heads of a sample
  HeadSample sample_;
  const Evidence& evidence_;
  const SearchLimits& limits_;
  const bool tests_pairs_;
  Inputs given_in_, in_;
  bool by_score_ = false;
  std::optional<Output> output_;          ///< nullopt for a gradient or delta
  std::optional<BackwardPass> backward_;  ///< of these
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::clock_t start_of_work_ = std::clock();
  std::optional<double> end_;  ///< of a part of the search whose time is limited
  std::vector<ComparedPart> parts_;
  InputErrors base_errors_;
  std::mutex bounds_mutex_;    ///< bounds take much memory: one thread at a time computes them
  Fit before_, first_before_;  ///< of the job, in all parts and in the first
  /// The errors of what was named before find_smaller_errors() searches on, in the first part and
  /// in all.
  struct Named {
    double first_rms, rms;
  };
  std::optional<Named> named_;
  std::vector<Candidate> candidates_;
  std::set<std::pair<const Hypothesis*, const Hypothesis*>> tested_pairs_;
  std::vector<std::vector<double>> squares_of_grid_;  ///< of factors, for each head
  Diagnosis found_;
};

std::string percent(double share) {
  return share == 1 ? "all" : six_digits(std::floor(share * 1e4) / 100) + " %";
}

}  // namespace

Diagnosis diagnose(const Variant& given, const Evidence& evidence, const SearchLimits& limits) {
  return Search(given, evidence, limits).run();
}

std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis) {
  std::vector<std::string> lines;
  std::string sample;
  if (diagnosis.queries < diagnosis.all_queries)
    sample = ", on " + std::to_string(diagnosis.queries) + " sampled queries";
  if (diagnosis.heads < diagnosis.all_heads)
    sample += (sample.empty() ? ", on " : " of ") + std::to_string(diagnosis.heads) +
              " sampled key/value heads";
  const auto line_of = [&](const Finding& finding) {
    constexpr std::string_view kMultiple = "the result multiplied by ";
    if (finding.ids.size() == 1 && finding.kernel.starts_with(kMultiple))
      return "is " + finding.kernel.substr(kMultiple.size()) + " times the reference";
    return (finding.kernel.starts_with("without ") ? "agrees with the job " : "agrees with ") +
           finding.kernel + (finding.job.empty() ? "" : " (the job has " + finding.job + ")");
  };
  const auto is_of_all = [](const std::string& line) { return line.starts_with(kAllWrong); };
  const bool is_blank =
      std::any_of(diagnosis.pattern.begin(), diagnosis.pattern.end(), is_of_all) &&
      diagnosis.findings.empty() && diagnosis.arithmetic.empty();
  if (!diagnosis.findings.empty()) {
    const Finding& first = diagnosis.findings[0];
    const std::string share = first.explained < 1 ? " for " + percent(first.explained) : "";
    lines.push_back(line_of(first) + share + sample);
    for (std::size_t i = 1; i < diagnosis.findings.size(); ++i)
      lines.push_back("or " + line_of(diagnosis.findings[i]));
    if (diagnosis.findings.size() > 1)
      lines.emplace_back(
          "these inputs cannot tell them apart; others may: attn random --kind adversarial --for "
          "JOB -o inputs.npz");
  } else if (!diagnosis.arithmetic.empty()) {
    lines.push_back("arithmetic, not meaning: the errors are those of " + diagnosis.arithmetic +
                    sample);
  } else if (!is_blank) {
    lines.push_back("no known mistake explains it: " + std::to_string(diagnosis.tested) +
                    " hypotheses and " + std::to_string(diagnosis.pairs) + " pairs tested" +
                    sample);
  }
  if (!diagnosis.untested.empty() && !is_blank)
    lines.push_back("not tested " + diagnosis.why_untested + ": " + join(diagnosis.untested, ", "));
  for (const std::string& line : diagnosis.pattern)
    lines.push_back((is_of_all(line) ? "" : "wrong: ") + line);
  return lines;
}

}  // namespace attn
