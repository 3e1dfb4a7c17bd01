#include "attn/attention/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attn/base/error.h"
#include "attn/problem/output_table.h"

namespace attn {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// Checks that `tensor` has the shape of `rows` and one more axis, as long as that of `like` if
/// given:
/// "part.npz: head_context: expected floats (3, 2, *) to match the first part, found ...".
void check_tensor(const std::string& part, Output output, const Tensor& tensor, const Shape& rows,
                  const Tensor* like, ProblemList& problems) {
  Shape leading = tensor.shape();
  const bool as_long =
      !leading.empty() && (like == nullptr || leading.back() == like->shape().back());
  if (!leading.empty()) leading.pop_back();
  if (as_long && leading == rows && is_float(tensor.dtype())) return;
  std::string expected = "(";
  for (const std::size_t n : rows) expected += std::to_string(n) + ", ";
  expected += like == nullptr ? "*)" : std::to_string(like->shape().back()) + ")";
  problems.add({.where = {part},
                .subject = std::string(name_of(output)),
                .expected = "floats " + expected + " to match the first part",
                .found = std::string(name_of(tensor.dtype())) + " " + to_string(tensor.shape())});
}

void check(const std::vector<Partial>& parts, const std::vector<std::string>& names) {
  const Shape& rows = parts[0].logsumexp.shape();
  const Tensor& first = parts[0].head_context;
  ProblemList problems;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor& l = parts[i].logsumexp;
    if (l.shape() != rows || !is_float(l.dtype()))
      problems.add({.where = {names[i]},
                    .subject = std::string(name_of(Output::logsumexp)),
                    .expected = "floats " + to_string(rows),
                    .found = std::string(name_of(l.dtype())) + " " + to_string(l.shape())});
    const bool later = i > 0 && first.rank() > 0;
    check_tensor(names[i], Output::head_context, parts[i].head_context, rows,
                 later ? &first : nullptr, problems);
    if (parts[i].weights)
      check_tensor(names[i], Output::weights, *parts[i].weights, rows, nullptr, problems);
  }
  if (!problems.empty()) problems.raise(ErrorKind::data);
}

DType widest_dtype(const std::vector<Partial>& parts) {
  DType dtype = parts[0].head_context.dtype();
  for (const Partial& part : parts) {
    const DType other = part.head_context.dtype();
    if (other == dtype) continue;
    dtype = dtype == DType::f64 || other == DType::f64 ? DType::f64 : DType::f32;
  }
  return dtype;
}

/// log(sum exp l_i) of one query; NaN if any l_i is NaN.
double total(const std::vector<Tensor>& logs, std::size_t row) {
  double max = kNone, sum = 0;
  for (const Tensor& log : logs) max = std::max(max, log.data<double>()[row]);
  for (const Tensor& log : logs) {
    const double value = log.data<double>()[row];
    if (std::isnan(value)) return value;
    sum += value == kNone ? 0 : std::exp(value - max);
  }
  return max == kNone ? kNone : max + std::log(sum);
}

}  // namespace

Partial merge(const std::vector<Partial>& parts, const std::vector<std::string>& names,
              double lse_base) {
  check(parts, names);
  const DType dtype = widest_dtype(parts);
  std::vector<Tensor> logs;
  const double unit = lse_base == std::numbers::e ? 1 : std::log(lse_base);
  for (const Partial& part : parts) {
    logs.push_back(cast(part.logsumexp, DType::f64));
    for (double& log : logs.back().mutable_data<double>()) log *= unit;
  }
  const bool weighed = std::all_of(parts.begin(), parts.end(),
                                   [](const Partial& part) { return part.weights.has_value(); });
  std::size_t S = 0, from = 0;
  for (const Partial& part : parts) S += weighed ? part.weights->shape().back() : 0;
  Shape keys = logs[0].shape();
  keys.push_back(S);
  Tensor logsumexp(DType::f64, logs[0].shape()), weights(DType::f64, keys);
  Tensor context(DType::f64, parts[0].head_context.shape());
  const auto l = logsumexp.mutable_data<double>(), o = context.mutable_data<double>(),
             w = weights.mutable_data<double>();
  for (std::size_t row = 0; row < l.size(); ++row) l[row] = total(logs, row);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor part_context = cast(parts[i].head_context, DType::f64);
    const Tensor part_weights = cast(weighed ? *parts[i].weights : Tensor(), DType::f64);
    const std::size_t Dv = context.shape().back(), n = weighed ? part_weights.shape().back() : 0;
    for (std::size_t row = 0; row < l.size(); ++row) {
      const double log = logs[i].data<double>()[row];
      if (log == kNone) continue;  // the contents of an empty row are ignored
      const double share = std::exp(log - l[row]);
      for (std::size_t d = 0; d < Dv; ++d)
        o[row * Dv + d] += share * part_context.data<double>()[row * Dv + d];
      for (std::size_t j = 0; j < n; ++j)
        w[row * S + from + j] = share * part_weights.data<double>()[row * n + j];
    }
    from += n;
  }
  for (double& log : l) log /= unit;
  Partial merged{cast(logsumexp, dtype == DType::f64 ? DType::f64 : DType::f32),
                 cast(context, dtype), std::nullopt};
  if (weighed) merged.weights = cast(weights, dtype);
  return merged;
}

}  // namespace attn
