// The parts of a wrong result on which hypotheses are tested, and what changed jobs have there.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/diagnose/backward_pass.h"
#include "attn/diagnose/evaluation.h"
#include "attn/diagnose/evidence.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/diagnose/variant.h"

namespace attn {

/// About so many scores are evaluated for a result that depends on them.
inline constexpr std::size_t kSampledScores = std::size_t{1} << 22;

/// Some queries of the result and of its job, or of a gradient some key/value heads.
struct ComparedPart {
  std::vector<std::size_t> rows;     ///< of the result
  std::vector<std::size_t> queries;  ///< of the job, which may compute some of them only
  std::vector<KvHead> heads;         ///< empty: all
  Tensor result, reference;
  std::optional<Tensor> bounds;
  std::vector<bool> wrong;                  ///< elements that differ from the job
  std::optional<Tensor> of_earlier_stages;  ///< bounds / those of attention_only(), at least 1

  const Tensor* bounds_or_null() const { return bounds ? &*bounds : nullptr; }
};

/// The job with the changes of one hypothesis or two; from its queries, keys and values on, and
/// with the sampled heads, if the output depends on scores.
struct ChangedJob {
  Variant variant;
  std::vector<Claim> claims = {};  ///< of the hypotheses that apply
  bool too_large = false;
};

/// A wrong result and its job; of a large result a sample: some queries and heads, or of a gradient
/// some heads.
class ComparedSample {
 public:
  /// `evidence` must outlive this object. Errors: data, if the job is not valid.
  ComparedSample(const Variant& given, const Evidence& evidence);
  ComparedSample(const ComparedSample&) = delete;
  ComparedSample& operator=(const ComparedSample&) = delete;

  const Evidence& evidence() const { return evidence_; }
  bool depends_on_scores() const { return depends_on_scores_; }
  bool is_of_gradients() const { return backward_.has_value(); }
  const std::optional<Output>& output() const { return output_; }  ///< nullopt for a gradient

  /// The job in float64: as given, and, if the output depends on scores or is a gradient, from its
  /// queries, keys and values on, with the sampled heads. Hypotheses of the two stages change them.
  const Variant& given() const { return given_; }
  const Inputs& given_in() const { return given_in_; }
  const Variant& base() const { return base_; }
  const Inputs& in() const { return in_; }
  bool is_of_some_heads() const { return all_.has_value(); }
  const Variant& base_of_all_heads() const { return all_ ? all_->variant : base_; }
  /// Calls search() while base() and in() are those of a changed job with the same heads. The
  /// bounds of earlier stages remain those of the job itself.
  template <class Part>
  void with_base(Variant variant, Inputs in, const Part& search) {
    if (evidence_.precision != nullptr)
      for (ComparedPart& part : parts_)
        if (part.bounds) earlier_stages(part);
    std::swap(base_, variant), std::swap(in_, in);
    const Restored restored{*this, variant, in};
    search();
  }

  std::vector<ComparedPart>& parts() { return parts_; }
  const std::vector<ComparedPart>& parts() const { return parts_; }
  const SampleSize& size() const { return size_; }
  /// The fit of the job itself to all parts, and to the first.
  const Fit& before() const { return before_; }
  const Fit& first_before() const { return first_before_; }

  /// Whether the hypothesis may change this output.
  bool is_relevant(const Hypothesis& hypothesis) const;
  /// The job with the changes of one hypothesis or two, of which the first may be of an earlier
  /// stage. Errors: data, if the changed job is not valid.
  ChangedJob changed(const Hypothesis& first, const Hypothesis* second = nullptr) const;

  /// A part of the changed variant; nullopt if its shape differs. One thread at a time may ask for
  /// bounds, which are kept. `known`: errors of inputs, for calls with the same variant.
  std::optional<Evaluated> evaluated(const Variant& variant, ComparedPart& part, bool with_bounds,
                                     InputErrors* known = nullptr);
  /// How far values and their bounds, if there are any, explain a part.
  Fit fit_of(const ComparedPart& part, const Tensor& values, const Tensor* bounds) const;
  /// Gives a gradient the bounds of the job or, where these are larger, those that rows of its size
  /// have in the mean.
  void add_bounds(const ComparedPart& part, Evaluated& result) const;
  /// Whether values without bounds may explain the first part: wide bounds from those of the job.
  bool is_possible(const ComparedPart& part, const Tensor& values) const;
  /// If the variant hides all keys from queries that see some in the job, the job does not say what
  /// their results are: those that fit best, NaN or the mean of all values instead of 0.
  void adapt_empty_rows(Variant& variant, ComparedPart& part, Evaluated& found);
  /// The matrices (B, H, ...) of these heads, (1, n, ...).
  Tensor with_heads(const Tensor& matrices, const std::vector<KvHead>& heads) const;

  /// Of the finite elements of all parts.
  double reference_rms() const;
  /// Whether all wrong elements are 0 or NaN: nobody wrote them, or not yet.
  bool is_blank() const;
  /// Whether the same holds for all elements: then no finding says more.
  bool is_blank_everywhere() const;
  std::vector<std::string> pattern_lines() const;

 private:
  struct Restored {
    ~Restored() { std::swap(sample.base_, variant), std::swap(sample.in_, in); }
    ComparedSample& sample;
    Variant& variant;
    Inputs& in;
  };

  /// The job with all heads.
  struct Complete {
    Variant variant;
    Inputs in;
  };

  void take_queries();
  /// Evaluates some heads of a large job.
  void choose_heads();
  /// The sampled items and heads of matrices (B, H, ...).
  Tensor with_sampled_heads(const Tensor& matrices) const;
  /// Whether the evidence is of more heads than base_.
  bool is_of_more_heads() const;
  /// How many of these matrices (B, H, ...) each key/value head has.
  std::size_t matrices_of_head() const;
  /// The heads that represent all: those with the largest error and the smallest, and others at
  /// equal distances. Empty if these are all.
  std::vector<KvHead> few_heads() const;
  void take_heads();
  /// Fits the reference to a part, and keeps it.
  void add_part(ComparedPart part);
  /// The bounds of rounding before attention_only(), relative to its own, of a part with bounds.
  const Tensor& earlier_stages(ComparedPart& part);
  /// evaluated() for gradients, with the bounds of add_bounds().
  std::optional<Evaluated> evaluated_gradient(const Variant& variant, const ComparedPart& part,
                                              bool with_bounds) const;
  /// Whether a changed job has more scores than may be in memory for its gradients.
  bool is_too_large(const Variant& variant) const;

  Variant given_, base_;
  std::optional<Complete> all_;  ///< of base_, if that has the heads of a sample
  HeadSample heads_;
  const Evidence& evidence_;
  Inputs given_in_, in_;
  bool depends_on_scores_ = false;
  std::optional<Output> output_;          ///< nullopt for a gradient or delta
  std::optional<BackwardPass> backward_;  ///< of these
  SampleSize size_;
  std::vector<ComparedPart> parts_;
  InputErrors base_errors_;
  Fit before_, first_before_;
};

}  // namespace attn
