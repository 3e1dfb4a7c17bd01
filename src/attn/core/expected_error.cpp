#include "attn/core/expected_error.h"

#include <cmath>

#include "attn/core/error_ops.h"
#include "attn/core/formula.h"
#include "attn/core/gradient_error.h"
#include "attn/core/layout.h"

namespace attn {

std::optional<Precision> precision_named(std::string_view name) {
  const auto unit = [](int bits) { return std::ldexp(1.0, -bits); };
  if (name == "f64") return Precision{"f64", DType::f64, unit(53), unit(53), unit(53), unit(1022)};
  if (name == "f32") return Precision{"f32", DType::f32, unit(24), unit(24), unit(24), unit(126)};
  if (name == "tf32") return Precision{"tf32", DType::f32, unit(24), unit(11), unit(24), unit(126)};
  if (name == "f16") return Precision{"f16", DType::f16, unit(11), unit(11), unit(24), unit(24)};
  if (name == "bf16") return Precision{"bf16", DType::bf16, unit(8), unit(8), unit(24), unit(126)};
  return std::nullopt;
}

Precision with_sums_in(Precision precision, const Precision& sums) {
  precision.name += " with sums in " + sums.name;
  precision.sum = sums.result;
  return precision;
}

std::string missing_bound_reason(const Request& request, const Options& options) {
  if (is_of_gradients(request)) return missing_gradient_bound_reason(request, options);
  const Output* output = std::get_if<Output>(&request);
  if (!output || !row_of(*output).has_error_bound) return "for " + std::string(name_of(request));
  if (*output == Output::values || *output == Output::present_V || *output == Output::gates)
    return "";
  if (row_of(*output).phase == Phase::projection) return "";
  if (options.score != Score::dot) return "for score functions other than dot";
  if (row_of(*output).phase == Phase::scores || *output == Output::masked_scores) return "";
  if (options.normaliser != Normaliser::softmax) return "for normalisers other than softmax";
  if (options.softmax_axis != SoftmaxAxis::keys) return "with softmax.axis all";
  if (options.softmax_precision != SoftmaxPrecision::automatic) return "with softmax.precision";
  return "";
}

Tensor expected_error(const Request& request, const Inputs& in, const Precision& precision) {
  if (is_of_gradients(request)) return expected_gradient_error(request, in, precision);
  const Output output = std::get<Output>(request);
  ErrorOps ops(in, precision);
  Formula<ErrorOps> formula(ops, in);
  const Tensor error = ops.stored(formula.at(same_numbers_as(output))).error;
  const Tensor full = precision.stored == DType::f64 ? bounds::times(error, 2) : error;
  return to_user_layout(output, full, in);
}

}  // namespace attn
