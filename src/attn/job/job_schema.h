// The JSON Schema (draft 2020-12) of a job document.
#pragma once

#include <string>

namespace attn {

std::string job_schema();

}  // namespace attn
