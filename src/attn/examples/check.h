// Compares the results of an example with the output printed by its notebook.
//
// The text of each result must be byte-identical, and each number in it must equal the computed
// value at the printed precision. Singular vectors that are determined are compared up to their
// sign. The others are not compared, but all must be orthonormal and reproduce the matrix.
#pragma once

#include <string>

#include "attn/examples/evaluate.h"
#include "attn/examples/example.h"

namespace attn {

struct CheckResult {
  bool passed = false;
  std::string summary;  ///< "4 results", or the first difference
};

/// `expected` is the text of expected.txt.
CheckResult check_text(const Example& example, const Evaluation& evaluation,
                       const std::string& expected);

/// Evaluates the example and compares it with its expected.txt. Fails if it cannot be read or
/// computed.
CheckResult check_example(const std::string& folder);

}  // namespace attn
