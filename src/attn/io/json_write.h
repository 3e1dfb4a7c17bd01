// Writes JSON.
#pragma once

#include <string>
#include <string_view>

#include "attn/io/json.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// indent < 0: compact. Otherwise each member of an object has its own line, indented by `indent`
/// spaces and two more for each level. Floats have the shortest digits that read back as the same
/// value, with a
/// '.' or an exponent, so that they stay floats.
std::string to_json(const Json& json, int indent = -1);
void append_json(std::string& out, const Json& json, int indent = -1);

/// A string in double quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// A tensor as nested arrays. indent < 0: on one line. Otherwise each row of a matrix has its own
/// line, indented by `indent` spaces and two more for each axis; the last bracket is indented by
/// two fewer. f32, f16 and bf16 have the shortest digits of their own precision. Errors: data, for
/// more than a million rows without elements.
std::string to_json(const Tensor& tensor, int indent);
void append_json(std::string& out, const Tensor& tensor, int indent);

}  // namespace attn
