// Tensors in the memory of a caller of the library.
#pragma once

#include <cstddef>

#include "attn/attn.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The elements of `given`, which must outlive the result: in place, or copied if they are not
/// contiguous, not aligned, or bool with other bytes than 0 and 1. Adds the bytes copied to
/// `copied`. Errors: usage, for missing members; data, for an unknown dtype or too many axes.
Tensor input_tensor(const attn_tensor& given, std::size_t& copied);

}  // namespace attn
