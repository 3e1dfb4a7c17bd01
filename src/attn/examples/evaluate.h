// From an example to what it shows: every value computed anew, in the notebook's form.
#pragma once

#include <string>
#include <vector>

#include "attn/core/svd.h"
#include "attn/examples/example.h"
#include "attn/examples/value.h"

namespace attn {

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

/// Whether a line "# In [20]" stands before what each cell prints.
enum class CellLabels { hidden, shown };

/// All of it as the notebook printed it: cells are separated by an empty line.
std::string text_of(const Evaluation& evaluation, CellLabels labels = CellLabels::hidden);

}  // namespace attn
