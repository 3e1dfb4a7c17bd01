// Tensors as text, byte for byte as PyTorch 2.13 prints them (torch._tensor_str): tensor([...]),
// with the dtype unless it is float32, int64 or bool.
#pragma once

#include <string>
#include <vector>

#include "attn/base/print_options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// str() and repr(), which are the same.
std::string torch_text(const Tensor& tensor, const PrintOptions& options);

/// torch._tensor_str._Formatter of floats. All numbers of a tensor share one notation. Unless
/// options.sci_mode says otherwise, it is scientific if the largest magnitude is above 1e8 or above
/// 1000 times the smallest, or the smallest is below 1e-4 (ignoring zeros, NaN and infinities). If
/// all numbers are integers, they have no digits after the point.
class TorchFloatFormat {
 public:
  /// `values` are the elements to be printed.
  TorchFloatFormat(const std::vector<double>& values, const PrintOptions& options);

  /// At least width() characters. Zeros, NaN and infinities may have more.
  std::string operator()(double value) const;
  std::size_t width() const { return width_; }

 private:
  std::string unaligned(double value) const;

  int precision_;
  bool scientific_ = false;
  bool whole_ = true;  ///< all numbers are integers
  std::size_t width_ = 1;
};

}  // namespace attn
