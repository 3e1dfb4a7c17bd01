// Whether attn still computes what the notebook printed: its numbers and its text.
//
// Each result's text is compared byte for byte, and each number in it with the computed value, at
// the printed precision. Singular vectors are compared where they are determined: turned to the
// notebook's signs, and the others not at all, but all of them have to be orthonormal and to give
// the matrix back.
#pragma once

#include <string>

#include "attn/examples/evaluate.h"
#include "attn/examples/example.h"

namespace attn {

struct Verdict {
  bool agrees = false;
  std::string what;  ///< "4 results", or where the first difference is and how many there are
};

/// `expected` is the text of expected.txt.
Verdict compare(const Example& example, const Evaluation& evaluation, const std::string& expected);

/// Evaluates the example and compares it with its expected.txt; one that cannot be read or computed
/// does not agree, either.
Verdict check_example(const std::string& folder);

}  // namespace attn
