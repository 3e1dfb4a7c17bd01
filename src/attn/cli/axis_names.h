// Names of the axes of a tensor in a heat map. For logsumexp (B, H, L), rows are heads and columns
// are queries.
#pragma once

#include <string>

#include "attn/result/result_file.h"

namespace attn {

struct AxisNames {
  std::string rows = "rows", columns = "columns";
  std::string third = "head";  ///< the axis before the last two: "head" or "batch"
  bool known = false;          ///< whether the tensor is a known output or input
};

/// The axis names of the tensor `name` in a result. They come from the axes in the tables of
/// outputs and inputs; other tensors have rows and columns.
AxisNames axis_names(const ResultFile& result, const std::string& name);

}  // namespace attn
