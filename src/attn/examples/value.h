// The values of an example, and how references are looked up.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attn/examples/reference.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Which singular vectors are determined up to their sign. Those of equal or zero singular values
/// are not.
struct SingularVectors {
  std::size_t recipe = 0;        ///< index of the decomposition in Example::recipes
  std::size_t axis = 0;          ///< the tensor's axis along which the vectors are counted
  std::vector<bool> determined;  ///< for each vector
};

struct Value {
  Tensor tensor;
  std::optional<SingularVectors> singular;
};

/// The values of one result by name, and all results by name.
using Values = std::map<std::string, Value>;
using Results = std::map<std::string, Values>;

/// The value of each reference. Errors: data, for an unknown name, and for an access that the
/// value's shape does not allow.
std::vector<Value> resolve(const std::vector<Reference>& references, const Results& results);

}  // namespace attn
