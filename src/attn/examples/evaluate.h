// Computes an example and prints its values as the notebook did. Checks singular vectors: their
// signs are arbitrary, and so are the directions of vectors with equal or zero singular values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/attention/svd.h"
#include "attn/examples/example.h"
#include "attn/examples/value.h"

namespace attn {

/// A singular value decomposition among the results, for find_flaw().
struct Decomposition {
  Tensor matrix;
  Svd svd;
  Tensor all_s;  ///< includes the singular values beyond the rank
};

struct Shown {
  const Cell* cell = nullptr;
  const Show* show = nullptr;
  std::vector<Value> values;
  std::string text;  ///< ends in a newline
};

/// Refers to the example, which must outlive it.
struct Evaluation {
  std::vector<Shown> shown;
  std::vector<Decomposition> decompositions;
};

/// Computes all results of the example. Errors: data, no_input.
Evaluation evaluate(const Example& example);

/// The line at the start of each cell.
enum class CellLabels {
  hidden,
  shown,       ///< "# In [20]"
  with_values  ///< "# In [20]: first.scores[0]", the values that the cell prints
};

/// The notebook's printed text. Cells are separated by an empty line.
std::string text_of(const Evaluation& evaluation, CellLabels labels = CellLabels::hidden);

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
