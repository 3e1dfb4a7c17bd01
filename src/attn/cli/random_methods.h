// The methods of attn random: NumPy's names, what each takes, and the draws themselves.
#pragma once

#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

/// Which stream, which method and its arguments, as typed. An option that a method does not take is
/// refused where it is typed, so what stands in it otherwise is never read.
struct DrawOptions {
  std::string method, generator = "RandomState", seed;
  std::string shape, dtype, low, high, loc = "0", scale = "1", p, n, input;
  bool replace = true;
  std::size_t repeat = 1;
  std::vector<std::string> typed;  ///< the options that were typed, of those that draws take
};

/// What `options` ask for, named arr_0, arr_1, ... as numpy.savez does. `input` is what stands in
/// the file of that option. Errors: usage; data where the input is not what the method can take.
TensorMap draw(const DrawOptions& options, const Tensor& input);

/// Every method with the options that it takes, a line each.
std::string list_methods();

}  // namespace attn
