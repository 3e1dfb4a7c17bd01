// Tensors from JSON arrays.
#pragma once

#include <string>

#include "attn/io/json_write.h"
#include "attn/io/read_budget.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Converts nested arrays to a tensor: int64 if all numbers are integers (uint64 if one needs it),
/// bool if all elements are booleans, otherwise float64, also for arrays without elements. A single
/// number is 0-d; [[]] is (1, 0). Errors: data, for ragged rows and mixed elements, with the row:
/// "W_Q: row [1] has 2 elements, row [0] has 3".
Tensor tensor_from_json(const Json& json, const std::string& name);
/// Charges the elements to `charge`.
Tensor tensor_from_json(const Json& json, const std::string& name, MemoryCharge& charge);

}  // namespace attn
