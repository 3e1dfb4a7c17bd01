#include "attn/job/nan.h"

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

}  // namespace

std::string nan_report(const Job& job, const Result& result) {
  for (const auto& [name, tensor] : result.outputs) {
    const Found out = find_nan(tensor);
    if (out.count == 0) continue;
    const std::string effect = name + ": " + std::to_string(out.count) + " of " +
                               std::to_string(tensor.size()) + " are NaN, the first at " +
                               index_of(out.first, tensor.shape());
    for (const auto& [input, given] : job.tensors) {
      const Found in = find_nan(given);
      if (in.count == 0) continue;
      return printable(job.origins.at(input)) + ": " + input + ": expected no NaN, found " +
             std::to_string(in.count) + ", the first at " + index_of(in.first, given.shape()) +
             "; " + effect;
    }
    return effect;
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
