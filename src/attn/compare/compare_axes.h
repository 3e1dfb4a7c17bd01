// The axes of compared tensors: their letters, and those along which batches and heads are compared
// separately.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/attention/plan.h"
#include "attn/job/labels.h"
#include "attn/metrics/comparison.h"
#include "attn/problem/axis.h"

namespace attn {

struct TensorAxes {
  AxisList letters = {};             ///< of all axes; empty if unknown
  std::vector<PartAxis> parts = {};  ///< outermost first; without axes of length 1
};

/// Of an output of a job with this many heads.
TensorAxes axes_of_output(const PlannedOutput& output, std::size_t heads);

/// Of a tensor of a file. If its axes are not known, the parts are those of all axes but the last
/// two: "axis 0", "axis 1".
TensorAxes axes_by_labels(const Labels& labels, const Shape& shape);

/// The axes that number the tokens of a tensor with this many axes: batch items with queries or,
/// without these, with keys. If the letters are unknown or have neither, all but the last.
std::vector<std::size_t> token_axes(const AxisList& letters, std::size_t rank);

}  // namespace attn
