// Whether the errors of a result are those of a lower precision, and of no other meaning.
#pragma once

#include <string>
#include <vector>

#include "attn/diagnose/search.h"

namespace attn {

/// Tests weights that are rounded to 8 bits, recomputed with their rounding errors. A number
/// between two of them may be rounded to the other one, which changes its row.
void test_rounded_weights(Search& search);

/// Tests queries and keys that are rounded to bfloat16 for the scores, recomputed with their
/// rounding errors. After a rotation, few may be rounded to the other of two numbers, which changes
/// the context of all queries a little.
void test_rounded_factors(Search& search);

/// Names the lower precisions (precision_named()), or `sums` in them, whose errors these may be:
/// within their bounds, and of their size.
void test_arithmetic(Search& search, const std::vector<std::string>& names, bool sums);

}  // namespace attn
