#include "attn/compare/partwise_job.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attn/base/error.h"
#include "attn/compare/compare_hints.h"
#include "attn/compare/job_variant.h"
#include "attn/problem/layout.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 21;   ///< elements of all inputs
constexpr std::size_t kOfPart = std::size_t{1} << 20;  ///< elements of the inputs of a part
constexpr std::size_t kRowsOfAllHeads = 32;
constexpr Input kGiven[] = {Input::Q, Input::K, Input::V};

/// Rows from a part: (items, heads, R, C), in the tensor's dtype.
Tensor matrices_at(const Tensor& tensor, const Matrices& view, const HeadSample& part) {
  Tensor result(tensor.dtype(), {part.items.size(), part.heads.size(), view.R, view.C});
  const std::size_t size = size_of(tensor.dtype());
  std::byte* out = result.mutable_raw();
  for (const std::size_t item : part.items)
    for (const std::size_t head : part.heads)
      for (std::size_t r = 0; r < view.R; ++r)
        out = std::copy_n(tensor.raw() + view.at(item, head, r, 0) * size, view.C * size, out);
  return result;
}

/// Copies these rows of the matrices of a part to matrices of all items and heads.
void put_rows(const Tensor& part, const HeadSample& heads, const std::vector<std::size_t>& rows,
              Tensor& all) {
  const std::size_t R = part.shape()[2], H = all.shape()[1];
  const std::size_t bytes = part.shape()[3] * size_of(part.dtype());
  const std::byte* matrix = part.raw();
  for (const std::size_t item : heads.items)
    for (const std::size_t head : heads.heads) {
      std::byte* to = all.mutable_raw() + (item * H + head) * rows.size() * bytes;
      for (const std::size_t r : rows) to = std::copy_n(matrix + r * bytes, bytes, to);
      matrix += R * bytes;
    }
}

std::vector<std::size_t> range(std::size_t first, std::size_t count) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

}  // namespace

void require_finite_bounds(const std::string& name, const Tensor& reference, const Tensor& bounds) {
  const auto values = reference.data<double>(), limits = bounds.data<double>();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i]) && !std::isfinite(limits[i]))
      fail_data(name +
                ": the error bound overflows, because inputs are too large; "
                "set --rtol, --atol or --ulp");
}

bool PartwiseJob::fits(const Job& job) {
  const bool known = std::all_of(job.tensors.begin(), job.tensors.end(), [](const auto& named) {
    const auto input = input_named(named.first);
    return std::find(std::begin(kGiven), std::end(kGiven), input) != std::end(kGiven) ||
           input == Input::key_lengths || input == Input::query_lengths;
  });
  std::size_t elements = 0;
  for (const Input input : kGiven)
    if (const Tensor* tensor = find(job.tensors, input)) {
      if (!is_float(tensor->dtype()) || (tensor->rows() && tensor->rows()->table()->is_stored()))
        return false;
      elements += tensor->size();
    }
  const Options& options = job.options;
  const Tensor* const Q = find(job.tensors, Input::Q);
  const bool is_packed = Q != nullptr && Q->rank() < 4 && options.heads > 1;
  return known && !is_packed && elements >= kLarge && contains(job.tensors, Input::Q) &&
         contains(job.tensors, Input::K) && !options.alibi && options.mask_rule.empty() &&
         options.bias_rule.empty() && options.rows.empty() && !variant_of(job).cache;
}

void PartwiseJob::convert_when_read(Job& job) {
  for (const Input input : kGiven)
    if (const Tensor* tensor = find(job.tensors, input))
      job.tensors.set(std::string(name_of(input)), cast(as_gathered(*tensor), DType::f64));
}

PartwiseJob::PartwiseJob(const Job& job, const Inputs& in)
    : whole_(attention_only(variant_of(job))),
      B_(in.B),
      H_(in.H),
      G_(in.G),
      elements_(elements_of_head(in)) {}

bool PartwiseJob::has_parts(const PlannedOutput& planned, const Shape& result) const {
  const Output* output = std::get_if<Output>(&planned.request);
  const Variant& job = whole_;
  if (output == nullptr || result != planned.shape || !can_choose_heads(job)) return false;
  const Inputs in = make_inputs(job);
  const Matrices view = view_of(planned);
  // compare_hints() tries to swap axes of the same length, for which it needs all elements.
  const bool may_swap_rows = std::count(result.begin(), result.end(), view.R) > 1;
  return !may_swap_rows && is_expected_in_parts(*output, in) && view.B == B_ && view.H == H_ &&
         (view.C == 1 || view.stride_C == 1);
}

std::size_t PartwiseJob::bytes() const {
  return 16 * sizeof(double) * std::max(kOfPart, elements_);
}

Matrices PartwiseJob::view_of(const PlannedOutput& planned) const {
  return matrices_of(planned.shape, planned.axes, H_);
}

std::vector<HeadSample> PartwiseJob::parts() const {
  const std::size_t pairs = std::max<std::size_t>(1, kOfPart / std::max<std::size_t>(1, elements_));
  const std::size_t groups = std::min(G_, pairs),
                    items = groups < G_ ? 1 : std::min(B_, pairs / G_);
  std::vector<HeadSample> parts;
  for (std::size_t b = 0; b < B_; b += items)
    for (std::size_t g = 0; g < G_; g += groups) {
      const std::size_t first = g * (H_ / G_), end = std::min(G_, g + groups) * (H_ / G_);
      parts.push_back({range(b, std::min(items, B_ - b)), range(first, end - first)});
    }
  return parts;
}

Expected PartwiseJob::expected_of(const PlannedOutput& planned, const Precision& precision,
                                  const HeadSample& heads) const {
  const Variant part = with_chosen_heads(whole_, heads);
  const Inputs in = make_inputs(part);
  const Output output = same_numbers_as(std::get<Output>(planned.request));
  Expected found = expected(output, in, precision);
  const Matrices view = matrices_of(found.value.shape(), plan(in, {output}).outputs[0].axes, in.H);
  return {taken(found.value, view), taken(found.error, view)};
}

PartwiseJob::Found PartwiseJob::compare(Compared compared, const PlannedOutput& planned,
                                        const Precision& precision) const {
  const Matrices view = view_of(planned);
  const TensorAxes axes = axes_of_output(planned, H_);
  PartwiseComparison comparison(planned.shape, compared.tolerance, axes.parts);
  const std::vector<std::size_t> rows =
      sampled_rows(std::vector<double>(view.R), kRowsOfAllHeads, {});
  const Shape of_rows{B_, H_, rows.size(), view.C};
  Found found{{},
              true,
              std::vector<double>(B_ * H_),
              Pattern(view),
              Tensor(compared.a.dtype(), of_rows),
              {Tensor(DType::f64, of_rows), Tensor(DType::f64, of_rows)}};
  bool is_zero = true;
  for (const HeadSample& part : parts()) {
    const Expected expected = expected_of(planned, precision, part);
    const Tensor a = matrices_at(compared.a, view, part);
    require_finite_bounds(compared.name, expected.value, expected.error);
    std::vector<std::size_t> starts;
    for (const std::size_t item : part.items)
      for (const std::size_t head : part.heads)
        for (std::size_t r = 0; r < view.R; ++r) starts.push_back(view.at(item, head, r, 0));
    comparison.add(a, expected.value, &expected.error, starts);
    const Evidence evidence{planned.request,    a,          expected.value,       &expected.error,
                            compared.tolerance, &precision, contiguous(a.shape())};
    found.pattern.add(evidence, &part);
    put_rows(a, part, rows, found.result);
    put_rows(expected.value, part, rows, found.expected.value);
    put_rows(expected.error, part, rows, found.expected.error);
    const std::vector<double> errors = matrix_errors(evidence);
    for (std::size_t i = 0; i < errors.size(); ++i)
      found.errors[part.items[i / part.heads.size()] * H_ + part.heads[i % part.heads.size()]] =
          errors[i];
    const auto values = expected.value.data<double>(), bounds = expected.error.data<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      is_zero &= values[i] == 0;
      found.accepts_zeros &= std::abs(values[i]) <= bounds[i];
    }
  }
  found.accepts_zeros &= !is_zero;
  compared.b = Tensor(DType::f64, planned.shape), compared.bounds = compared.b;
  compared.has_elements = false, compared.bound_of = precision.name;
  found.pair = {std::move(compared), comparison.whole(), axes.parts};
  if (!found.pair.passed()) {
    found.pair.parts = comparison.parts();
    found.pair.hints = compare_hints(found.pair.compared, found.pair.found, axes.letters,
                                     whole_.find(Input::Q)->shape().back());
  }
  return found;
}

PartwiseJob::Sample PartwiseJob::sample(const Compared& compared, const PlannedOutput& planned,
                                        const Precision& precision,
                                        const std::vector<double>& errors) const {
  HeadSample heads = sampled_heads(errors, B_, H_, G_, elements_);
  if (heads.heads.empty()) heads = {range(0, B_), range(0, H_)};
  Tensor result = matrices_at(compared.a, view_of(planned), heads);
  return {heads, std::move(result), expected_of(planned, precision, heads)};
}

}  // namespace attn
