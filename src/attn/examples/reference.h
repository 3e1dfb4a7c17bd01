// References to values in an example: "first.scores[0]", "kept.Vt.T".
//
//   REFERENCE = RESULT "." VALUE { ACCESS }
//   ACCESS    = "[" INDEX "]"   element INDEX of the first axis
//             | ".T"            the transpose of a matrix
//             | ".joined"       concatenates heads: (H, M, D) to (M, H*D)
//             | ".shape"        the shape as a vector of integers
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace attn {

struct Access {
  enum class Kind { index, transpose, joined, shape };
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

}  // namespace attn
