#include "attn/diagnose/compared_sample.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "attn/attention/fused_gradients.h"
#include "attn/diagnose/pattern.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

constexpr std::size_t kMostQueries = 256, kFirstQueries = 12;
constexpr std::size_t kScores = std::size_t{1} << 18;  ///< in the memory of a thread at once
/// From this number of scores on, some heads are evaluated.
constexpr std::size_t kScoresOfAllHeads = std::size_t{1} << 23;
/// Of gradients, which are sums over all queries.
constexpr std::size_t kScoresOfHeads = std::size_t{1} << 23, kFewestHeads = 3;
/// Where the kernels cannot compute the gradients of a changed job.
constexpr std::size_t kMostKeptScores = std::size_t{1} << 24;

double rms_of(const Tensor& tensor) {
  double squares = 0;
  for (const double x : tensor.data<double>())
    if (std::isfinite(x)) squares += x * x;
  return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, tensor.size())));
}

}  // namespace

ComparedSample::ComparedSample(const Variant& given, const Evidence& evidence)
    : given_(given), evidence_(evidence) {
  given_.options.compute = Compute::f64;
  for (const auto& [name, tensor] : given.tensors)
    if (is_float(tensor.dtype())) given_.tensors.set(name, cast(tensor, DType::f64));
  const bool is_backward = attn::is_of_gradients(evidence.output);
  if (!is_backward)
    if (const Output* output = std::get_if<Output>(&evidence.output)) output_ = *output;
  depends_on_scores_ = output_ && needs_scores(*output_);
  given_in_ = make_inputs(given_);
  if (depends_on_scores_ || is_backward) {
    base_ = attention_only(given_);
    if (is_backward) base_.options.rows = given_.options.rows;
    in_ = make_inputs(base_);
  }
  if (is_backward) backward_.emplace(given_in_, base_, evidence.output);
  if (depends_on_scores_) choose_heads();
  if (backward_ && backward_->is_by_head() && !few_heads().empty())
    take_heads();
  else
    take_queries();
}

void ComparedSample::take_queries() {
  const Matrices& view = evidence_.view;
  const std::vector<double> errors = row_errors(evidence_);
  std::vector<std::size_t> queries(given_in_.rows);
  const bool has_queries = depends_on_scores_ && view.R == queries.size();
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
  size_.queries = rows.size(), size_.all_queries = view.R;
  for (std::size_t first = 0; first < rows.size();) {
    const std::size_t count =
        has_queries
            ? std::min(first == 0 ? std::min(block, kFirstQueries) : block, rows.size() - first)
            : rows.size();
    const std::vector<std::size_t> some(rows.begin() + static_cast<std::ptrdiff_t>(first),
                                        rows.begin() + static_cast<std::ptrdiff_t>(first + count));
    ComparedPart part;
    part.rows = some;
    for (const std::size_t row : some) part.queries.push_back(has_queries ? queries[row] : row);
    if (depends_on_scores_ && !has_queries) part.queries = queries;
    const auto in_part = [&](const Tensor& all) {
      return with_sampled_heads(taken(all, view, some));
    };
    part.result = in_part(evidence_.result), part.reference = in_part(evidence_.reference);
    if (evidence_.bounds != nullptr) part.bounds = in_part(*evidence_.bounds);
    add_part(std::move(part));
    first += count;
  }
}

void ComparedSample::choose_heads() {
  const Matrices& view = evidence_.view;
  if (evidence_.excerpt != nullptr) {
    heads_ = *evidence_.excerpt->heads;
  } else {
    if (saturating_product({in_.B, in_.H, in_.rows.size(), in_.S}) < kScoresOfAllHeads ||
        view.B != in_.B || view.H != in_.H || !can_choose_heads(base_))
      return;
    heads_ = sampled_heads(matrix_errors(evidence_), in_.B, in_.H, in_.G, elements_of_head(in_));
  }
  if (heads_.heads.empty()) return;
  all_ = Complete{base_, in_};
  base_ = with_chosen_heads(base_, heads_);
  in_ = make_inputs(base_);
  size_.heads = in_.B * in_.G, size_.all_heads = all_->in.B * all_->in.G;
}

Tensor ComparedSample::with_sampled_heads(const Tensor& matrices) const {
  return is_of_more_heads() ? matrices_from(matrices, heads_.items, heads_.heads) : matrices;
}

bool ComparedSample::is_of_more_heads() const { return all_ && evidence_.excerpt == nullptr; }

std::vector<std::string> ComparedSample::pattern_lines() const {
  const Inputs* const in = !depends_on_scores_ ? nullptr : all_ ? &all_->in : &in_;
  if (evidence_.excerpt != nullptr) return evidence_.excerpt->pattern->lines(in);
  Pattern pattern(evidence_.view);
  pattern.add(evidence_);
  return pattern.lines(in);
}

std::size_t ComparedSample::matrices_of_head() const {
  return in_.G == 0 ? 0 : evidence_.view.H / in_.G;
}

std::vector<KvHead> ComparedSample::few_heads() const {
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

void ComparedSample::take_heads() {
  const std::vector<KvHead> heads = few_heads();
  size_.heads = heads.size(), size_.all_heads = in_.B * in_.G;
  size_.queries = size_.all_queries = evidence_.view.R;
  const auto some = [&](const Tensor& tensor, const std::vector<KvHead>& of) {
    return with_heads(taken(tensor, evidence_.view), of);
  };
  for (const bool is_first : {true, false}) {
    ComparedPart part;
    part.heads = is_first ? std::vector(1, heads[0]) : std::vector(heads.begin() + 1, heads.end());
    part.result = some(evidence_.result, part.heads);
    part.reference = some(evidence_.reference, part.heads);
    if (evidence_.bounds != nullptr) part.bounds = some(*evidence_.bounds, part.heads);
    add_part(std::move(part));
  }
}

Tensor ComparedSample::with_heads(const Tensor& matrices, const std::vector<KvHead>& heads) const {
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

void ComparedSample::add_part(ComparedPart part) {
  const Fit fitted = fit_of(part, part.reference, part.bounds_or_null());
  part.wrong = fitted.is_outside;
  if (parts_.empty()) first_before_ = fitted;
  before_.add(fitted);
  parts_.push_back(std::move(part));
}

Fit ComparedSample::fit_of(const ComparedPart& part, const Tensor& values,
                           const Tensor* bounds) const {
  return fit(part.result, values, bounds, evidence_.tolerance, evidence_.result.dtype(),
             part.wrong);
}

bool ComparedSample::is_relevant(const Hypothesis& hypothesis) const {
  if (hypothesis.group() == "logsumexp") return output_ == Output::logsumexp;
  return depends_on_scores_ || backward_ || hypothesis.projects();
}

const Tensor& ComparedSample::earlier_stages(ComparedPart& part) {
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

std::optional<Evaluated> ComparedSample::evaluated(const Variant& variant, ComparedPart& part,
                                                   bool with_bounds, InputErrors* known) {
  const Precision* precision = with_bounds ? evidence_.precision : nullptr;
  if (backward_) return evaluated_gradient(variant, part, with_bounds);
  Evaluated result = depends_on_scores_
                         ? evaluate(variant, *output_, part.queries, precision, known)
                         : evaluate_given(variant, evidence_.output, precision);
  if (result.values.shape() != part.result.shape()) return std::nullopt;
  if (!with_bounds || !part.bounds) return result;
  if (!result.bounds) {
    result.bounds = part.bounds;
  } else if (depends_on_scores_) {
    const auto ratio = earlier_stages(part).data<double>();
    const auto out = result.bounds->mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] *= ratio[i];
  }
  return result;
}

std::optional<Evaluated> ComparedSample::evaluated_gradient(const Variant& variant,
                                                            const ComparedPart& part,
                                                            bool with_bounds) const {
  Evaluated result;
  if (variant.is_attention_only) {
    const Tensor values = backward_->gradient(variant, part.heads.empty() ? nullptr : &part.heads);
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

void ComparedSample::add_bounds(const ComparedPart& part, Evaluated& result) const {
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

bool ComparedSample::is_too_large(const Variant& variant) const {
  if (!backward_ || variant.is_attention_only) return false;
  Options options = variant.options;
  options.path = Path::automatic;
  const Inputs in = make_inputs({variant.tensors, options});
  return saturating_product({in.B, in.H, in.rows.size(), in.S}) > kMostKeptScores &&
         gradient_fallback_reason(in, {evidence_.output}) != nullptr;
}

bool ComparedSample::is_possible(const ComparedPart& part, const Tensor& values) const {
  const auto a = part.result.data<double>(), b = values.data<double>();
  const double rms = rms_of(part.result);
  std::size_t outside = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double bound = bound_of(part.bounds_or_null(), i, evidence_.tolerance, b[i], DType::f64);
    outside += is_within(a[i], b[i], 32 * bound + 0.02 * (rms + std::abs(b[i]))) ? 0 : 1;
  }
  return outside * 10 <= a.size();
}

void ComparedSample::adapt_empty_rows(Variant& variant, ComparedPart& part, Evaluated& found) {
  if (!depends_on_scores_ || !variant.is_attention_only) return;
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

ChangedJob ComparedSample::changed(const Hypothesis& first, const Hypothesis* second) const {
  if (all_ && second != nullptr && second->reads_all_heads() && !first.reads_all_heads() &&
      first.projects() == second->projects()) {  // before heads are chosen
    ChangedJob result = changed(*second, &first);
    if (result.claims.size() == 2) std::swap(result.claims[0], result.claims[1]);
    return result;
  }
  bool projects = first.projects();
  bool has_all = all_ && (projects || first.reads_all_heads());
  ChangedJob result{projects ? given_ : has_all ? all_->variant : base_};
  Variant& variant = result.variant;
  const auto apply = [&](const Hypothesis& hypothesis, const Inputs& in) {
    const auto claim = hypothesis.apply(variant, in);
    if (claim) result.claims.push_back(*claim);
    result.too_large = claim && (claim->too_large || is_too_large(variant));
    return claim && !result.too_large;
  };
  const auto project = [&] {
    if (std::exchange(projects, false) && depends_on_scores_) variant = attention_only(variant);
  };
  const auto choose = [&] {
    if (!projects && std::exchange(has_all, false)) variant = with_chosen_heads(variant, heads_);
  };
  if (!apply(first, projects ? given_in_ : has_all ? all_->in : in_)) return result;
  if (second != nullptr) {
    if (!second->projects()) project();
    if (!second->reads_all_heads()) choose();
    if (!apply(*second, make_inputs(variant))) return result;
  }
  project();
  choose();
  return result;
}

double ComparedSample::reference_rms() const {
  double squares = 0, count = 0;
  for (const ComparedPart& part : parts_)
    for (const double value : part.reference.data<double>())
      if (std::isfinite(value)) squares += value * value, ++count;
  return count > 0 ? std::sqrt(squares / count) : 0;
}

bool ComparedSample::is_blank() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const ComparedPart& part) {
    const auto elements = part.result.data<double>();
    for (std::size_t i = 0; i < elements.size(); ++i)
      if (part.wrong[i] && elements[i] != 0 && !std::isnan(elements[i])) return false;
    return true;
  });
}

bool ComparedSample::is_blank_everywhere() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const ComparedPart& part) {
    const auto elements = part.result.data<double>();
    return std::all_of(elements.begin(), elements.end(),
                       [](double x) { return x == 0 || std::isnan(x); });
  });
}

}  // namespace attn
