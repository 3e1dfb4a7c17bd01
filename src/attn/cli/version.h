// attn --version: which program this is and, told more of, what computes here.
#pragma once

#include <string>

namespace attn {

/// "attn 1.2.3" and, with `verbose`, a line each for the kernels, BLAS and processors.
std::string version_text(bool verbose);

}  // namespace attn
