#include "attn/job/nan.h"

#include <algorithm>
#include <cmath>

#include "attn/tensor/error.h"

namespace attn {
namespace {

struct Found {
  std::size_t count = 0, first = 0;
};

Found find_nan(const Tensor& tensor) {
  Found found;
  if (!is_float(tensor.dtype())) return found;
  visit(tensor.dtype(), [&]<class T>(Type<T>) {
    if constexpr (!std::is_integral_v<T>) {
      const auto data = tensor.data<T>();
      for (std::size_t i = data.size(); i-- > 0;) {
        if (!std::isnan(static_cast<double>(data[i]))) continue;
        ++found.count;
        found.first = i;
      }
    }
  });
  return found;
}

std::string index_of(std::size_t flat, const Shape& shape) {
  std::string text;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    text = std::to_string(flat % shape[axis]) + (text.empty() ? "" : ", ") + text;
    flat /= shape[axis];
  }
  return "[" + text + "]";
}

/// Whether an output is computed behind the mask, where what is hidden has gone.
bool is_masked(const std::string& name) {
  static const std::vector<std::string> kMasked = {"masked_scores", "weights", "logsumexp",
                                                   "head_context",  "context", "output"};
  return std::find(kMasked.begin(), kMasked.end(), name) != kMasked.end();
}

/// "; Q.npy: Q holds 2, the first at [0, 1]" for each given tensor with NaN. Which of them was the
/// cause, or whether an infinity was, is not known.
std::string given_nan(const Job& job) {
  std::string text;
  for (const auto& [name, tensor] : job.tensors) {
    const Found in = find_nan(tensor);
    if (in.count == 0) continue;
    text += "; " + printable(job.origins.at(name)) + ": " + name + " holds " +
            std::to_string(in.count) + ", the first at " + index_of(in.first, tensor.shape());
  }
  return text;
}

}  // namespace

std::string nan_report(const Job& job, const Result& result) {
  const bool any_masked = std::any_of(result.outputs.begin(), result.outputs.end(),
                                      [](const auto& entry) { return is_masked(entry.first); });
  for (const auto& [name, tensor] : result.outputs) {
    if (any_masked && !is_masked(name)) continue;
    const Found out = find_nan(tensor);
    if (out.count == 0) continue;
    return name + ": expected no NaN, found " + std::to_string(out.count) + " of " +
           std::to_string(tensor.size()) + ", the first at " + index_of(out.first, tensor.shape()) +
           given_nan(job);
  }
  return "";
}

std::string nan_warning(const Job& job, const Result& result, NanPolicy policy) {
  if (policy == NanPolicy::allow) return "";
  std::string report = nan_report(job, result);
  if (!report.empty() && policy == NanPolicy::refuse) throw Error(ErrorKind::data, report);
  return report;
}

}  // namespace attn
