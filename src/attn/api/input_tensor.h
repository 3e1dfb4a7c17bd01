// Tensors in the memory of a caller of the library.
#pragma once

#include <cstddef>

#include "attn/attn.h"
#include "attn/io/read_budget.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The elements of `given`, which must outlive the result: in place, or copied if they are not
/// contiguous, not aligned, in the other byte order, or bool with other bytes than 0 and 1. Adds
/// the bytes copied to `copied`; they are charged to `budget` first and stay charged. Errors:
/// usage, for missing members; data, for an unknown dtype, too many axes or too many bytes to copy.
Tensor input_tensor(const attn_tensor& given, ReadBudget& budget, std::size_t& copied);

}  // namespace attn
