// Prints a value in the form of a notebook.
#pragma once

#include <string>
#include <vector>

#include "attn/examples/example.h"
#include "attn/examples/value.h"

namespace attn {

/// The text of `show` for these values; ends in a newline. Errors: data, for values that do not fit
/// the form.
std::string text_of(const Show& show, const std::vector<Value>& values);

}  // namespace attn
