// The text of attn --version.
#pragma once

#include <string>

namespace attn {

/// "attn 1.2.3"; if `verbose`, also a line each for kernels, BLAS and processors.
std::string version_text(bool verbose);

}  // namespace attn
