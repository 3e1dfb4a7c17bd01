// Finds the elements of a tensor in a file.
#pragma once

#include <optional>
#include <string>

#include "attn/io/file.h"
#include "attn/io/npz.h"
#include "attn/io/read_budget.h"
#include "attn/tensor/tensor_place.h"

namespace attn {

/// The place of a tensor of an .npy, .npz or .safetensors file; the name of that of an .npy file is
/// "". Nothing for files of other formats, and for elements in another byte order or layout, or of
/// a dtype that is converted when it is read. The memory to find it is charged to `budget`. Errors:
/// data.
std::optional<TensorPlace> place_in_file(const FileBytes& file, const std::string& name,
                                         const NpzLimits& limits, ReadBudget& budget);

}  // namespace attn
