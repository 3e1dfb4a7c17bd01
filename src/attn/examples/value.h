// The values of an example, and references to them: "first.scores[0]", "kept.Vt.T".
//
//   REFERENCE = RESULT "." VALUE { ACCESS }
//   ACCESS    = "[" INDEX "]"   element INDEX of the first axis
//             | ".T"            the transpose of a matrix
//             | ".joined"       concatenates heads: (H, M, D) to (M, H*D)
//             | ".shape"        the shape as a vector of integers
//             | ".sum"          the sums along the last axis (row_sums)
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

struct Access {
  enum class Kind { index, transpose, joined, shape, sum };
  Kind kind = Kind::index;
  std::size_t index = 0;
};

struct Reference {
  std::string text;    ///< as written
  std::string result;  ///< "first"
  std::string value;   ///< "scores"
  std::vector<Access> accesses;
};

/// Error messages start with `where`. Errors: data.
Reference parse_reference(const std::string& text, const std::string& where);

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
using JobValues = std::map<std::string, Values>;

/// The sums along the last axis, added in its order and in the dtype. `name` is for errors. Errors:
/// data, unless it is an array of float64 or float32.
Tensor row_sums(const Tensor& tensor, const std::string& name);

/// The value of each reference. Errors: data, for an unknown name, and for an access that the
/// value's shape does not allow.
std::vector<Value> resolve(const std::vector<Reference>& references, const JobValues& results);

}  // namespace attn
