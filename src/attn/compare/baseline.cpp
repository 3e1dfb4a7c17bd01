#include "attn/compare/baseline.h"

#include <string>

#include "attn/attention/low_precision.h"
#include "attn/base/error.h"

namespace attn {
namespace {

/// Errors: usage.
void require_baseline(const Request& output, const Precision& precision) {
  const std::string name(name_of(output));
  if (precision.stored == DType::f64)
    fail_usage(name +
               ": the baseline has the precision of the result, which is float64, as that "
               "of the reference; set --precision f32, f16 or bf16");
  if (precision.factor != precision.result)
    fail_usage(name + ": no baseline is known for " + precision.name +
               "; set --precision f32, f16 or bf16");
}

}  // namespace

Tensor baseline_of(const Request& output, const Job& job, const Precision& precision) {
  require_baseline(output, precision);
  Options options = job.options;
  options.compute = is_of_gradients(output) ? Compute::f64 : Compute::f32;
  TensorMap stored;
  for (const auto& [name, tensor] : job.tensors)
    stored.set(name, is_float(tensor.dtype()) ? cast(tensor, precision.stored) : tensor);
  return low_precision(output, make_inputs({stored, options}), precision.stored);
}

}  // namespace attn
