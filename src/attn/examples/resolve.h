// From references to values.
#pragma once

#include <vector>

#include "attn/examples/reference.h"
#include "attn/examples/value.h"

namespace attn {

/// What each reference stands for. Errors: data, for an unknown name (with the nearest) and for an
/// access that the value's shape does not allow.
std::vector<Value> resolve(const std::vector<Reference>& references, const Results& results);

}  // namespace attn
