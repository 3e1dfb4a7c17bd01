// Derivatives through the fused kernels: everything from scores to head_context is one operation,
// whose derivatives kernel/backward.h computes without a matrix of scores.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The key of the first option, input or derivative that the backward kernels do not support;
/// nullptr if they support this problem and the gradients among `requests`.
const char* gradient_fallback_reason(const Inputs& in, const std::vector<Request>& requests);

/// The operands of the kernels and what they computed, in float32 or float64.
struct Attended {
  const Inputs* in = nullptr;            ///< that with the masks of this dtype
  Tensor queries, keys, values;          ///< (B, H, R, D), (B, G, S, D), (B, G, S, Dv)
  Tensor context;                        ///< (B, H, R, Dv)
  Tensor logsumexp;                      ///< (B, H, R), a natural logarithm
  std::optional<Tensor> remainder = {};  ///< (B, H, R), that of kernel::Results; nullopt: 0
};

/// Computes the context from float64 operands in the dtype of `in`, or in float64 where its numbers
/// do not suffice; `wide` is the same problem in float64. nullopt: float64 does not suffice either.
/// Both problems must outlive the result.
std::optional<Attended> attend_for_gradients(const Tensor& queries, const Tensor& keys,
                                             const Tensor& values, const Inputs& in,
                                             const Inputs& wide);

/// The additive tensors that the kernels take.
inline constexpr std::array kKernelBiases = {Input::bias, Input::mask, Input::key_mask};

/// All float64.
struct AttendedDerivatives {
  Tensor queries, keys, values;  ///< in the shapes of the operands, if they are requested
  std::array<std::optional<Tensor>, kKernelBiases.size()> biases;  ///< in the shapes of Inputs
  std::optional<Tensor> sinks;                                     ///< (H)
  Tensor delta;                                                    ///< delta_of() the context
};

/// Sums over columns of the context times its derivative g, (B, H, R), float64; 0 for queries whose
/// context is 0.
Tensor delta_of(const Tensor& context, const Tensor& g);

/// What attended_derivatives() computes.
struct AttendedRequest {
  bool queries = true, keys = true, values = true;
  std::array<bool, kKernelBiases.size()> biases{};
  const Tensor* delta = nullptr;  ///< used instead of delta_of() the context
};

/// Derivatives by the operands, from g, that by the context, and from that by the natural logsumexp
/// (nullopt: 0).
AttendedDerivatives attended_derivatives(const Attended& of, const Tensor& g,
                                         const std::optional<Tensor>& of_logsumexp,
                                         const AttendedRequest& request);

/// Where an operand of the kernels comes from.
enum class OperandSource {
  given,      ///< it is a tensor of the job
  converted,  ///< it has its numbers, in another order or type
  computed    ///< by operations in float64
};
struct OperandSources {
  OperandSource queries, keys, values, grad_context;
};

/// Upper bounds of memory, in bytes.
struct AttendedBytes {
  std::size_t kept;     ///< from attend_for_gradients() to the derivatives by the operands
  std::size_t passing;  ///< of attended_derivatives() beside it
};
AttendedBytes bytes_of_attended(const Inputs& in, const OperandSources& sources);

}  // namespace attn
