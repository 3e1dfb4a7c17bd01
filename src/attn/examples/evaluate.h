// From an example to what it shows: every value computed anew, in the notebook's form.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/core/svd.h"
#include "attn/examples/example.h"
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

/// A decomposition among the results, kept for checks of its own.
struct Decomposition {
  Tensor matrix;
  Svd svd;
  Tensor all_s;  ///< also those that the rank cuts off
};

struct Shown {
  const Cell* cell = nullptr;
  const Show* show = nullptr;
  std::vector<Value> values;
  std::string text;  ///< ends in a newline
};

/// Valid while the example lives.
struct Evaluation {
  std::vector<Shown> shown;
  std::vector<Decomposition> decompositions;
};

/// Runs the jobs and everything else that the example names. Errors: data, no_input.
Evaluation evaluate(const Example& example);

/// The text of `show` for these values; ends in a newline.
std::string text_of(const Show& show, const std::vector<Value>& values);

/// Whether a line "# In [20]" stands before what each cell prints.
enum class CellLabels { hidden, shown };

/// All of it as the notebook printed it: cells are separated by an empty line.
std::string text_of(const Evaluation& evaluation, CellLabels labels = CellLabels::hidden);

}  // namespace attn
