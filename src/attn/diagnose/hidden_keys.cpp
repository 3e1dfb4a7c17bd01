#include "attn/diagnose/hidden_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "attn/attention/gemm.h"
#include "attn/attention/normalise.h"
#include "attn/base/error.h"
#include "attn/diagnose/changes.h"

namespace attn {
namespace {

bool is_hidden(double score) { return score == -HUGE_VAL; }

/// The scores of some rows, (B, H, rows, S).
struct Scores {
  Tensor masked;  ///< hidden keys are -inf
  Tensor open;    ///< without the masks of without_masks()
  Tensor biases;  ///< open without products of queries and keys; only if asked for

  Scores(const Variant& variant, const Variant& opened, const std::vector<std::size_t>& rows,
         bool with_biases) {
    const auto of = [&](const Variant& from, Output output) {
      return evaluate(from, output, rows, nullptr).values;
    };
    Variant job = variant;
    job.row_change = RowChange::none;
    masked = of(job, Output::masked_scores);
    open = of(opened, Output::masked_scores);
    if (!with_biases) return;
    biases = open;
    const Tensor scaled = of(opened, Output::scaled_scores);
    const auto out = biases.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!is_hidden(out[i])) out[i] -= scaled.data<double>()[i];
  }
};

/// The score of a hidden key, but for the number of the change.
const Tensor* terms_of(const Scores& scores, RowChange change) {
  return change == RowChange::hidden_added        ? &scores.open
         : change == RowChange::hidden_set_biased ? &scores.biases
                                                  : nullptr;
}

/// exp(x - the largest) / their sum, which includes the sink; `empty` if nothing is visible.
void softmax(std::span<double> row, double sink, double empty) {
  const double largest = std::max(sink, *std::max_element(row.begin(), row.end()));
  if (is_hidden(largest)) return std::fill(row.begin(), row.end(), empty);
  double sum = std::exp(sink - largest);
  for (double& x : row) sum += x = std::exp(x - largest);
  for (double& x : row) x /= sum;
}

/// The weights of the kernel, before dropout, from scores that are those of hidden keys too.
class SoftmaxWeights {
 public:
  SoftmaxWeights(const Variant& variant, const Inputs& in)
      : variant_(variant), in_(in), empty_(empty_weight(in.options.empty_rows, in.S)) {
    if (const Tensor* sinks = variant.find(Input::sinks)) sinks_ = cast(*sinks, DType::f64);
  }

  Tensor operator()(const Scores& scores) const {
    const RowChange change = variant_.row_change;
    Tensor weights = scores.masked;
    const Tensor* terms = terms_of(scores, change);
    const auto out = weights.mutable_data<double>();
    const auto open = scores.open.data<double>();
    std::vector<bool> was_hidden(in_.S);
    for (std::size_t from = 0; from < out.size(); from += in_.S) {
      const auto row = out.subspan(from, in_.S);
      const double sink = sink_of(from);
      for (std::size_t j = 0; j < in_.S; ++j) {
        was_hidden[j] = is_hidden(row[j]);
        const double term = terms != nullptr ? terms->data<double>()[from + j] : 0;
        if (change == RowChange::none)
          row[j] = open[from + j];
        else if (change == RowChange::hidden_only)
          row[j] = was_hidden[j] ? open[from + j] : -HUGE_VAL;
        else if (was_hidden[j] && is_set_or_added(change))
          row[j] = variant_.of_hidden + term;
      }
      softmax(row, sink, empty_);
      if (change != RowChange::twice && change != RowChange::twice_masked) continue;
      for (std::size_t j = 0; j < in_.S; ++j)
        if (was_hidden[j] && change == RowChange::twice_masked) row[j] = -HUGE_VAL;
      softmax(row, -HUGE_VAL, empty_);
    }
    return weights;
  }

  static bool is_set_or_added(RowChange change) {
    return change == RowChange::hidden_set || change == RowChange::hidden_set_biased ||
           change == RowChange::hidden_added;
  }

 private:
  /// Of the row that begins at this score.
  double sink_of(std::size_t at) const {
    const std::size_t head = at / (in_.S * in_.rows.size()) % in_.H;
    return sinks_ ? sinks_->data<double>()[head] : -HUGE_VAL;
  }

  const Variant& variant_;
  const Inputs& in_;
  const double empty_;
  std::optional<Tensor> sinks_;
};

/// Weights (B, H, rows, S) after dropout.
void drop(Tensor& weights, const Inputs& in) {
  if (!in[Input::dropout_mask]) return;
  const Tensor& kept = *in[Input::dropout_mask];
  const Shape& shape = kept.shape();
  const double factor = 1 / (1 - in.options.dropout_p.value_or(0));
  const auto out = weights.mutable_data<double>();
  const auto keeps = kept.data<bool>();
  const std::size_t R = in.rows.size();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::array<std::size_t, 4> place = {i / (in.S * R * in.H), i / (in.S * R) % in.H,
                                              in.rows[i / in.S % R], i % in.S};
    std::size_t at = 0;
    for (std::size_t axis = 0; axis < 4; ++axis)
      at = at * shape[axis] + (shape[axis] > 1 ? place[axis] : 0);
    out[i] *= keeps[at] ? factor : 0;
  }
}

Tensor magnitudes(const Tensor& x) {
  return mapped(x, [](double value) { return std::abs(value); });
}

/// The largest bound of each row relative to its element, of elements that are not much smaller
/// than others.
Tensor relative_bounds(const Tensor& bounds, const Tensor& of) {
  constexpr double kSmall = 1e-3;
  const Shape& shape = of.shape();
  Tensor result(DType::f64, {shape[0], shape[1], shape[2]});
  for (std::size_t row = 0; row < result.size(); ++row) {
    const auto x = of.data<double>().subspan(row * shape[3], shape[3]);
    const auto bound = bounds.data<double>().subspan(row * shape[3], shape[3]);
    const double largest = *std::max_element(x.begin(), x.end());
    double& most = result.mutable_data<double>()[row];
    for (std::size_t i = 0; i < x.size(); ++i)
      if (x[i] > kSmall * largest) most = std::max(most, bound[i] / x[i]);
  }
  return result;
}

}  // namespace

Evaluated evaluate_with_hidden(const Variant& variant, Output output,
                               const std::vector<std::size_t>& rows, const Precision* precision,
                               InputErrors* known) {
  if (output != Output::head_context && output != Output::weights)
    fail_usage("a change without effect on this output");
  const Inputs in = inputs_of_rows(variant, rows);
  const Variant open = without_masks(variant, in);
  const Scores scores(variant, open, rows, variant.row_change == RowChange::hidden_set_biased);
  Tensor weights = SoftmaxWeights(variant, in)(scores);
  drop(weights, in);
  const Tensor values = output == Output::head_context ? all_values(variant) : Tensor();
  const auto result_of = [&](const Tensor& of_weights, const Tensor& of_values) {
    return output == Output::weights ? of_weights
                                     : matmul(of_weights, of_values, Second::plain, "");
  };
  Evaluated result{result_of(weights, values), std::nullopt};
  if (precision == nullptr) return result;
  const Evaluated opened = evaluate(open, output, rows, precision, known);
  if (!opened.bounds) return result;
  Tensor of_open = SoftmaxWeights(open, in)(scores);
  drop(of_open, in);
  const Tensor sizes = output == Output::head_context ? magnitudes(values) : Tensor();
  const Tensor share = relative_bounds(*opened.bounds, result_of(of_open, sizes));
  result.bounds = result_of(weights, sizes);
  const auto bounds = result.bounds->mutable_data<double>();
  const std::size_t columns = result.bounds->shape()[3];
  for (std::size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = bounds[i] * share.data<double>()[i / columns] + precision->least;
  return result;
}

std::optional<double> fitted_score(const Variant& job, RowChange change,
                                   const std::vector<std::size_t>& rows, const Tensor& result) {
  constexpr double kLeast = -200, kMost = 20;
  const Inputs in = inputs_of_rows(job, rows);
  const Scores scores(job, without_masks(job, in), rows, change == RowChange::hidden_set_biased);
  const Tensor context = evaluate(job, Output::head_context, rows, nullptr).values;
  if (context.shape() != result.shape()) return std::nullopt;
  Variant natural = job;
  report_natural_logsumexp(natural.options);
  const Tensor logsumexp = evaluate(natural, Output::logsumexp, rows, nullptr).values;
  const Tensor* terms = terms_of(scores, change);
  Tensor weights = scores.masked;
  const auto out = weights.mutable_data<double>();
  std::vector<double> sums(out.size() / in.S);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double of_row = logsumexp.data<double>()[i / in.S];
    const double term = terms != nullptr ? terms->data<double>()[i] : 0;
    out[i] = is_hidden(out[i]) && std::isfinite(of_row) ? std::exp(term - of_row) : 0;
    sums[i / in.S] += out[i];
  }
  drop(weights, in);
  const Tensor hidden = matmul(weights, all_values(job), Second::plain, "");
  const std::size_t columns = context.shape()[3];
  double number = 0;
  // Rounding errors of a row are multiplied by 1 + t n.
  for (int iteration = 0; iteration < 6; ++iteration) {
    const double t = std::exp(number);
    double xx = 0, xy = 0;
    for (std::size_t i = 0; i < context.size(); ++i) {
      const double a = result.data<double>()[i], n = sums[i / columns];
      const double x = (hidden.data<double>()[i] - n * a) / (1 + t * n);
      const double y = (a - context.data<double>()[i]) / (1 + t * n);
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      xx += x * x, xy += x * y;
    }
    if (!(xy > 0)) return std::nullopt;
    number = std::log(xy / xx);
  }
  return number > kLeast && number < kMost ? std::optional(number) : std::nullopt;
}

}  // namespace attn
