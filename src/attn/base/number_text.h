// Numbers as text: the fewest digits that read back as the same value.
//
// Floats look as Python's repr shows them: positional from 1e-4 up to 1e16, with an exponent
// beyond, and always with a '.' or an 'e'. Each type has the digits of its own precision: the f32
// nearest to 0.1 is "0.1", and the f16 nearest to it too.
#pragma once

#include <concepts>
#include <string>

#include "attn/base/dtype.h"

namespace attn {

/// Appends a finite value.
void append_number(std::string& out, double value);
void append_number(std::string& out, float value);
void append_number(std::string& out, Half value);
void append_number(std::string& out, BFloat16 value);

void append_number(std::string& out, std::integral auto value) { out += std::to_string(value); }

}  // namespace attn
