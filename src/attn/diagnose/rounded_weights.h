// Kernels that round their weights to 8 bits before the product with the values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/diagnose/variant.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// How a kernel rounds weights to e4m3 (OCP 8-bit floating point, revision 1.0: 3 bits of mantissa,
/// largest number 448, normal from 2^-6, subnormal steps of 2^-9).
struct WeightRounding {
  bool is_normalised;     ///< the weights, or exp(score - maximum), which are divided by their sum
                          ///< later
  double factor = 0;      ///< of the numbers before they are rounded; 0: they are not rounded
  std::size_t block = 0;  ///< keys after which the maximum may grow; 0: it is that of the row
  bool sums_rounded = false;  ///< the sum is that of rounded numbers

  std::string text() const;
};

/// The usual ones.
std::vector<WeightRounding> weight_roundings();

/// The number in e4m3 that is nearest to x >= 0, of two the even one; at most 448.
double rounded_to_e4m3(double x);

/// The context (B, H, rows, Dv) for masked scores (B, H, rows, S). `job` is an attention_only()
/// with a softmax over keys, without dropout and gates.
Tensor context_with(const WeightRounding& rounding, const Tensor& masked_scores,
                    const Variant& job);

}  // namespace attn
