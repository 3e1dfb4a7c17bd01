// What a reference stands for.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

/// What is known of singular vectors: neither their signs are determined nor, where singular values
/// are equal or zero, their directions.
struct SingularVectors {
  std::size_t recipe = 0;        ///< the decomposition that they belong to, in Example::recipes
  std::size_t axis = 0;          ///< of the tensor: the one that counts the vectors
  std::vector<bool> determined;  ///< each of them, up to its sign
};

struct Value {
  Tensor tensor;
  std::optional<SingularVectors> singular;
};

/// The values of one result, and all results, by name.
using Values = std::map<std::string, Value>;
using Results = std::map<std::string, Values>;

}  // namespace attn
