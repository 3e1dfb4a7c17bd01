// The weights of a result, recovered from its context and the values.
#pragma once

#include <string>

#include "attn/diagnose/evidence.h"
#include "attn/diagnose/variant.h"

namespace attn {

/// The weights w of a query, from context = w V by least squares: their sum, the keys that
/// they miss and those that only they have. "" if V does not determine them (more keys than
/// columns, or dependent rows) or the result is no context. `job` is an attention_only(), and `row`
/// the row of the result that has this query.
std::string recovered_weights(const Evidence& evidence, const Variant& job, std::size_t row,
                              std::size_t query);

}  // namespace attn
