// What can be said of singular vectors although their signs, and the directions of those of equal
// or zero singular values, are not determined.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/examples/evaluate.h"
#include "attn/examples/value.h"

namespace attn {

/// Signs chosen for the vectors of each decomposition, by SingularVectors::recipe: one choice
/// serves U and Vt, and every cell.
using ChosenSigns = std::map<std::size_t, std::vector<double>>;

/// `value` with the signs that the notebook's numbers have, and with these numbers themselves in
/// place of vectors that are not determined. `printed` has as many numbers as the tensor.
Tensor turned(const Value& value, const std::vector<double>& printed, ChosenSigns& signs);

/// "" when U and Vt are orthonormal and U diag(s) Vt is the matrix but for what the rank cuts off;
/// otherwise what is wrong.
std::string flaw_of(const Decomposition& decomposition);

}  // namespace attn
