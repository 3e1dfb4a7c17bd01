#include "attn/diagnose/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "attn/attention/score.h"
#include "attn/base/error.h"
#include "attn/diagnose/rounded_weights.h"
#include "attn/diagnose/row_changes.h"
#include "attn/problem/layout.h"

namespace attn {
namespace {

/// Errors of rounding: nearly the largest of rows / the median, if most rows have an element
/// outside of the bound, and if few have.
constexpr double kMostUneven = 12, kMostUnevenOfFew = 6;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// Whether each row is that of a query or key, and not a sum over all of them, as in the
/// gradients of parameters.
bool has_rows_of_tokens(const ComparedSample& sample) {
  const Gradient* gradient = std::get_if<Gradient>(&sample.evidence().output);
  if (gradient == nullptr) return true;
  const AxisList axes = gradient_axes(gradient->of, sample.given_in());
  if (axes.contains(Axis::L)) return sample.evidence().view.R == sample.given_in().L;
  return std::any_of(axes.begin(), axes.end(),
                     [](Axis axis) { return axis == Axis::N || axis == Axis::P; });
}

/// Whether rounding may cause the errors: those of nearly all rows are about the same share of
/// their numbers. A mistake in some heads, items or rows is not like this, but in sums over all
/// queries it may be.
bool is_like_rounding(const ComparedSample& sample) {
  if (!has_rows_of_tokens(sample)) return false;
  const std::vector<double> errors = row_errors(sample.evidence());
  const auto wrong = std::count_if(errors.begin(), errors.end(), [](double x) { return x > 1; });
  std::vector<double> shares;  // of rows of each item and head
  for (const ComparedPart& part : sample.parts()) {
    const auto a = part.result.data<double>(), b = part.reference.data<double>();
    const std::size_t columns = std::max<std::size_t>(1, part.result.shape().back());
    for (std::size_t row = 0; row < a.size(); row += columns) {
      double of_error = 0, of_row = 0;
      for (std::size_t i = row; i < row + columns; ++i) {
        if (std::isfinite(a[i]) && std::isfinite(b[i]))
          of_error += (a[i] - b[i]) * (a[i] - b[i]), of_row += b[i] * b[i];
        else if (!is_within(a[i], b[i], 0))
          return false;
      }
      if (of_row > 0) shares.push_back(std::sqrt(of_error / of_row));
    }
  }
  if (shares.empty()) return false;
  std::sort(shares.begin(), shares.end());
  const double median = shares[(shares.size() - 1) / 2], most = shares[shares.size() * 999 / 1000];
  const bool is_of_most = 2 * static_cast<std::size_t>(wrong) >= errors.size();
  return most <= (is_of_most ? kMostUneven : kMostUnevenOfFew) * median;
}

/// Whether rounding to the type changes no element.
template <class Narrow>
bool holds_only(const Tensor& result) {
  return visit(result.dtype(), [&]<class T>(Type<T>) {
    const auto elements = result.data<T>();
    return std::all_of(elements.begin(), elements.end(), [](T element) {
      const auto x = static_cast<double>(element);
      return is_within(x, static_cast<double>(Narrow(x)), 0);
    });
  });
}

}  // namespace

void test_rounded_weights(Search& search) {
  ComparedSample& sample = search.sample();
  if (sample.evidence().precision == nullptr || search.is_over() ||
      !may_change_rows(RowChange::none, sample.base(), sample.in()) ||
      (sample.output() != Output::context && sample.output() != Output::head_context))
    return;
  constexpr double kMostRows = 0.9;
  std::vector<WeightRounding> left = weight_roundings();
  std::vector<Fit> fits(left.size());
  for (ComparedPart& part : sample.parts()) {
    if (left.empty()) return;
    const Tensor scores =
        evaluate(sample.base(), Output::masked_scores, part.queries, nullptr).values;
    for (std::size_t i = left.size(); i-- > 0;) {
      const Tensor context = context_with(left[i], scores, sample.base());
      if (context.shape() == part.result.shape())
        fits[i].add(sample.fit_of(part, context, part.bounds_or_null()));
      if (fits[i].elements > 0 && fits[i].explained() >= kMostRows) continue;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
      fits.erase(fits.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::size_t best = left.size();
  for (std::size_t i = left.size(); i-- > 0;)
    if (10 * fits[i].outside <= sample.before().outside &&
        3 * fits[i].rms() <= sample.before().rms() &&
        (best == left.size() || fits[i].rms() <= fits[best].rms()))
      best = i;
  if (best == left.size()) return;
  search.found().arithmetic = left[best].text();
  search.found().is_recomputed = true;
}

void test_rounded_scores(Search& search) {
  ComparedSample& sample = search.sample();
  const Variant& job = sample.base();
  if (sample.evidence().precision == nullptr || search.is_over() ||
      !may_change_rows(RowChange::none, job, sample.in()) || job.options.score != Score::dot ||
      job.options.softcap != 0 || job.options.o_scale != 1 || job.has(Input::head_scale) ||
      (sample.output() != Output::context && sample.output() != Output::head_context))
    return;
  struct Stored {
    DType dtype;
    bool before_scale, after_scale;  ///< where they are rounded
    Fit fit = {};
  };
  std::vector<Stored> all;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const auto& [before, after] : {std::pair{true, false}, {true, true}, {false, true}})
      all.push_back({dtype, before, after});
  for (ComparedPart& part : sample.parts()) {
    const auto of = [&](Output output) {
      return evaluate(job, output, part.queries, nullptr).values;
    };
    const Tensor products = of(Output::scores), scaled = of(Output::scaled_scores),
                 masked = of(Output::masked_scores);
    for (Stored& stored : all) {
      const auto rounded = [&](const Tensor& x) { return cast(cast(x, stored.dtype), DType::f64); };
      Tensor scores = stored.before_scale ? rounded(products) : products;
      for (double& x : scores.mutable_data<double>()) x *= sample.in().scale.factor();
      if (stored.after_scale) scores = rounded(scores);
      std::size_t i = 0;
      for (double& x : scores.mutable_data<double>()) {
        const double with_mask = masked.data<double>()[i];
        x = with_mask == kMinusInfinity ? kMinusInfinity
                                        : x + (with_mask - scaled.data<double>()[i]);
        ++i;
      }
      const Tensor context = context_with({.is_normalised = true}, scores, job);
      if (context.shape() != part.result.shape()) return;
      stored.fit.add(sample.fit_of(part, context, part.bounds_or_null()));
    }
  }
  // Scores that overflow have NaN as results, which the RMS leaves out.
  const auto best = std::min_element(all.begin(), all.end(), [](const Stored& a, const Stored& b) {
    return std::pair(a.fit.outside, a.fit.rms()) < std::pair(b.fit.outside, b.fit.rms());
  });
  constexpr double kMostElements = 0.9;
  const Fit& before = sample.before();
  if (best->fit.explained() < kMostElements || 10 * best->fit.outside > before.outside ||
      2 * best->fit.rms() > before.rms())
    return;
  search.found().arithmetic = std::string("scores in ") +
                              (best->dtype == DType::bf16 ? "bf16" : "f16") +
                              (!best->after_scale   ? ""
                               : best->before_scale ? ", rounded before and after the scale"
                                                    : ", rounded after the scale");
  search.found().is_recomputed = true;
}

void test_rounded_factors(Search& search) {
  ComparedSample& sample = search.sample();
  if (sample.evidence().precision == nullptr || search.is_over() || !sample.depends_on_scores() ||
      sample.base().options.score != Score::dot || sample.base().options.bf16_products)
    return;
  const Precision of_weights = with_weights_in(*sample.evidence().precision, "bf16");
  // Of the weights only the bound is known: what is rounded depends on the maxima of the kernel.
  const auto fit_with = [&](std::initializer_list<Input> inputs,
                            const Precision* precision) -> std::optional<Fit> {
    Variant rounded = sample.base();
    for (const Input input : inputs)
      if (const Tensor* tensor = sample.base().find(input))
        rounded.set(input, cast(rounded_to_bf16(*tensor), DType::f64));
    Fit total;
    for (ComparedPart& part : sample.parts()) {
      const Evaluated found = evaluate(rounded, *sample.output(), part.queries, precision);
      if (found.values.shape() != part.result.shape()) return std::nullopt;
      const std::optional<Tensor>& bounds = precision ? found.bounds : part.bounds;
      total.add(sample.fit_of(part, found.values, bounds ? &*bounds : nullptr));
    }
    return total;
  };
  const bool has_values = sample.output() == Output::context ||
                          sample.output() == Output::head_context ||
                          sample.output() == Output::output;
  const Fit& before = sample.before();
  const std::optional<Fit> scores = fit_with({Input::Q, Input::K, Input::past_K}, nullptr);
  if (!scores) return;
  const bool leaves_few = 10 * scores->outside <= before.outside;
  if ((leaves_few ? 3 : 10) * scores->rms() <= before.rms()) {
    // compute: bf16 also rounds the factors of the context.
    search.found().arithmetic =
        std::string("scores of bf16 factors") + (has_values ? "" : " (compute: bf16)");
    search.found().is_recomputed = true;
    return;
  }
  if (!has_values) return;
  const std::optional<Fit> all =
      fit_with({Input::Q, Input::K, Input::past_K, Input::V, Input::past_V}, &of_weights);
  if (!all || all->explained() < kExplained || 10 * all->outside > before.outside ||
      all->rms() >= before.rms())
    return;
  search.found().arithmetic = "products in bf16 (compute: bf16)";
}

bool are_near_bounds(const ComparedSample& sample) {
  constexpr double kFar = 3;
  const std::vector<double> errors = row_errors(sample.evidence());
  return std::all_of(errors.begin(), errors.end(), [](double error) { return error <= kFar; });
}

std::vector<std::string> lower_precisions(const Tensor& result) {
  const bool is_wide = size_of(result.dtype()) > size_of(DType::f16);
  if (is_wide && holds_only<BFloat16>(result)) return {"bf16"};
  if (is_wide && holds_only<Half>(result)) return {"f16"};
  return {"f32", "tf32", "f16", "bf16"};
}

void test_arithmetic(Search& search, const std::vector<std::string>& names, bool sums) {
  ComparedSample& sample = search.sample();
  if (sample.evidence().precision == nullptr ||
      !(sample.depends_on_scores() || sample.is_of_gradients()) || !is_like_rounding(sample))
    return;
  for (const std::string& name : names) {
    if (sample.is_of_gradients() && search.is_over()) {  // these bounds take long
      search.found().untested.emplace_back("arithmetic");
      return;
    }
    const Precision other = *precision_named(name);
    const Precision tried = sums ? with_sums_in(*sample.evidence().precision, other) : other;
    const Precision& own = *sample.evidence().precision;
    if (sums ? tried.sum <= own.sum : std::max(tried.factor, tried.sum) <= own.factor) continue;
    // Bounds for the worst case can be as large as the values, and then contain any mistake.
    const double limit =
        sums ? std::min(32 * tried.sum, 0.05) : 8 * std::max(tried.factor, tried.sum);
    if (sample.before().rms() > limit * sample.reference_rms()) continue;
    Fit total;
    InputErrors known;
    std::optional<Tensor> whole;  // bounds of a gradient
    try {
      for (ComparedPart& part : sample.parts()) {
        if (sample.depends_on_scores()) {
          const Evaluated base =
              evaluate(sample.base(), *sample.output(), part.queries, &tried, &known);
          if (!base.bounds) return;
          total.add(sample.fit_of(part, part.reference, &*base.bounds));
          continue;
        }
        if (part.bounds && !whole)
          whole = taken(expected_error(sample.evidence().output, sample.given_in(), tried),
                        sample.evidence().view);
        if (!whole) return;
        const Tensor bounds = sample.with_heads(*whole, part.heads);
        total.add(sample.fit_of(part, part.reference, &bounds));
      }
    } catch (const Error&) {  // inputs that overflow this precision
      continue;
    }
    if (total.explained() < kExplained || 10 * total.outside > sample.before().outside) continue;
    if (!search.found().arithmetic.empty()) search.found().arithmetic += " or ";
    search.found().arithmetic += sums             ? "sums in " + name
                                 : name == "tf32" ? "tf32 or f16"  // as coarse
                                                  : name;
    return;
  }
}

}  // namespace attn
