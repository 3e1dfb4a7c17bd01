#include "attn/result/warnings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "attn/base/printable.h"

namespace attn {
namespace {

bool all_zero_or_one(const Tensor& tensor) {
  const Tensor values = cast(tensor, DType::f64);
  const auto data = values.data<double>();
  const bool some_one = std::find(data.begin(), data.end(), 1.0) != data.end();
  return some_one &&
         std::all_of(data.begin(), data.end(), [](double x) { return x == 0 || x == 1; });
}

std::string warn_overflow(const Inputs& in, const Result& result,
                          const std::vector<std::string>& outputs) {
  for (const std::string& name : outputs) {
    const auto overflow = result.overflows.find(name);
    if (overflow == result.overflows.end()) continue;
    const Tensor* tensor = result.outputs.find(name);
    const Shape& shape = tensor ? tensor->shape() : result.streamed.at(name).shape;
    return name + ": " + std::to_string(overflow->second) + " of " +
           std::to_string(element_count(shape)) + " values overflowed " +
           std::string(name_of(in.result)) + " and became inf; compute f32 keeps them";
  }
  return "";
}

std::string warn_float_mask(const Job& job) {
  const Tensor* mask = find(job.tensors, Input::mask);
  if (mask == nullptr || !is_float(mask->dtype()) || !all_zero_or_one(*mask)) return "";
  return printable(job.origins.at(std::string(name_of(Input::mask)))) +
         ": mask: floats are added to the scores, so 0 and 1 hide nothing; use booleans or "
         "integers to say which keys may be seen";
}

std::string warn_token_count(const Job& job, const Inputs& in) {
  const std::size_t count = job.tokens.size();
  const std::size_t keys = in.P + in.N;  // without the keys that are appended for every query
  if (count == 0 || count == in.L || count == keys || count == in.N) return "";
  const std::string others = keys == in.L ? "" : " or the " + std::to_string(keys) + " keys";
  return "tokens: expected as many as the " + std::to_string(in.L) + " queries" + others +
         ", found " + std::to_string(count) + "; labels are ignored";
}

}  // namespace

std::vector<std::string> warnings_of(const Job& job, const Inputs& in, const Result& result,
                                     const std::vector<std::string>& outputs, NanPolicy nan) {
  std::vector<std::string> warnings;
  for (std::string& warning :
       std::array{nan_warning(job, result, outputs, nan), warn_overflow(in, result, outputs),
                  warn_float_mask(job), warn_token_count(job, in)})
    if (!warning.empty()) warnings.push_back(std::move(warning));
  return warnings;
}

}  // namespace attn
