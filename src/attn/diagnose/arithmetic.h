// Whether the errors of a result are those of a lower precision, and of no other meaning.
#pragma once

#include <string>
#include <vector>

#include "attn/diagnose/search.h"

namespace attn {

// These set Diagnosis::arithmetic. Errors of the first three: data, if the job is not valid;
// bad_alloc.

/// Tests weights that are rounded to 8 bits, recomputed with their rounding errors. A number
/// between two of them may be rounded to the other one, which changes its row.
void test_rounded_weights(Search& search);

/// Tests scores that are stored in 16 bits before the softmax.
void test_rounded_scores(Search& search);

/// Tests queries and keys that are rounded to bfloat16 for the scores, recomputed with their
/// rounding errors, and then also values and, within their bound, weights. After a rotation, few
/// may be rounded to the other of two numbers, which changes the context of all queries a little.
void test_rounded_factors(Search& search);

/// Whether no error is much larger than the bound of its element.
bool are_near_bounds(const ComparedSample& sample);

/// Those in which a result may have been computed: bf16 or f16 if all numbers of a wider type are
/// of this one, otherwise f32 and lower ones.
std::vector<std::string> lower_precisions(const Tensor& result);

/// Names the lower precisions (precision_named()), or `sums` in them, whose errors these may be:
/// within their bounds, and of their size.
void test_arithmetic(Search& search, const std::vector<std::string>& names, bool sums);

}  // namespace attn
