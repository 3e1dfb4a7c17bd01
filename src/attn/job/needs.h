// What an option needs to mean anything: none is taken and then silently does nothing.
#pragma once

#include <string>
#include <vector>

#include "attn/job/job.h"

namespace attn {

/// A problem for each key that was given and changes nothing because what it speaks of is not
/// there:
/// "--layout: expected 4-D Q, K and V beside it, found none". A key that says what holds anyway is
/// let pass, and so is one that all jobs of a batch share. Errors: usage, when only flags are at
/// fault; data.
void check_needs(const Job& job, const Document& document);

}  // namespace attn
