#include "attn/result/warnings.h"

#include <algorithm>

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

}  // namespace

std::string mask_doubt(const Job& job) {
  const Tensor* mask = job.tensors.find("mask");
  if (mask == nullptr || !is_float(mask->dtype()) || !all_zero_or_one(*mask)) return "";
  return printable(job.origins.at("mask")) +
         ": mask: floats are added to the scores, and 0 and 1 hide nothing; give booleans or "
         "integers "
         "to say which keys may be seen";
}

std::string overflow_doubt(const Job& job, const Inputs& in, const Result& result) {
  for (const std::string& name : job.outputs) {
    const auto overflow = result.overflows.find(name);
    const Tensor* tensor = result.outputs.find(name);
    const auto streamed = result.streamed.find(name);
    if (overflow == result.overflows.end() || (!tensor && streamed == result.streamed.end()))
      continue;
    const Shape& shape = tensor ? tensor->shape() : streamed->second.shape;
    return name + ": expected numbers that " + std::string(name_of(in.result)) + " holds, found " +
           std::to_string(overflow->second) + " of " + std::to_string(element_count(shape)) +
           " beyond, which are infinite now; compute f32 keeps them";
  }
  return "";
}

std::string token_doubt(const Job& job, const Inputs& in) {
  const std::size_t count = job.tokens.size();
  const std::size_t keys = in.P + in.N;  // without those that every query sees
  if (count == 0 || count == in.L || count == keys || count == in.N) return "";
  const std::string others = keys == in.L ? "" : " or the " + std::to_string(keys) + " keys";
  return "tokens: expected as many as the " + std::to_string(in.L) + " queries" + others +
         ", found " + std::to_string(count) + "; they label nothing";
}

}  // namespace attn
