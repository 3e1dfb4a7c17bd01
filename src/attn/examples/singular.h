// Checks of singular vectors. Their signs are arbitrary, and so are the directions of vectors with
// equal or zero singular values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/examples/evaluate.h"
#include "attn/examples/value.h"

namespace attn {

/// The signs of each decomposition's vectors, by SingularVectors::recipe. U and Vt, and all cells,
/// use the same signs.
using ChosenSigns = std::map<std::size_t, std::vector<double>>;

/// `value` with the signs of the printed numbers. Vectors that are not determined are replaced by
/// the printed ones. `printed` has as many numbers as the tensor.
Tensor with_printed_signs(const Value& value, const std::vector<double>& printed,
                          ChosenSigns& signs);

/// "" if U and Vt are orthonormal and U diag(s) Vt is the matrix, up to what the rank cuts off;
/// otherwise a description of the error.
std::string find_flaw(const Decomposition& decomposition);

}  // namespace attn
