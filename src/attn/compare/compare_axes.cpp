#include "attn/compare/compare_axes.h"

namespace attn {
namespace {

constexpr std::size_t kMaxComparedParts =
    65536;  // beyond, batches and heads are not compared separately

/// The product of the lengths of the axes after `axis`.
std::size_t stride_of(const Shape& shape, std::size_t axis) {
  std::size_t stride = 1;
  for (std::size_t k = axis + 1; k < shape.size(); ++k) stride *= shape[k];
  return stride;
}

/// Without axes of length 1; empty if there are no elements or too many parts.
std::vector<PartAxis> several(const std::vector<PartAxis>& axes) {
  std::vector<PartAxis> kept;
  std::size_t count = 1;
  for (const PartAxis& axis : axes) {
    if (axis.length == 0 || axis.stride == 0 || axis.length > kMaxComparedParts) return {};
    count *= axis.length;
    if (axis.length > 1) kept.push_back(axis);
    if (count > kMaxComparedParts) return {};
  }
  return kept;
}

/// `heads`: of packed contexts.
std::vector<PartAxis> part_axes(const AxisList& letters, const Shape& shape, std::size_t heads) {
  std::vector<PartAxis> parts;
  for (std::size_t k = 0; k < letters.size(); ++k) {
    const Axis letter = letters[k];
    if (letter == Axis::layer)
      parts.push_back({"layer", shape[k], stride_of(shape, k)});
    else if (letter == Axis::B)
      parts.push_back({"batch", shape[k], stride_of(shape, k)});
    else if (is_head(letter))
      parts.push_back({"head", shape[k], stride_of(shape, k)});
    else if (letter == Axis::HDv && heads > 0 && shape[k] % heads == 0)
      parts.push_back({"head", heads, shape[k] / heads * stride_of(shape, k)});
  }
  return several(parts);
}

}  // namespace

TensorAxes axes_of_output(const PlannedOutput& output, std::size_t heads) {
  return {output.axes, part_axes(output.axes, output.shape, heads)};
}

TensorAxes axes_by_labels(const Labels& labels, const Shape& shape) {
  if (!labels.axes.empty() && labels.axes.size() == shape.size()) {
    const AxisList letters = letters_of(labels);
    return {letters, part_axes(letters, shape, 0)};
  }
  std::vector<PartAxis> parts;
  for (std::size_t axis = 0; axis + 2 < shape.size(); ++axis)
    parts.push_back({"axis " + std::to_string(axis), shape[axis], stride_of(shape, axis)});
  return {{}, several(parts)};
}

std::vector<std::size_t> token_axes(const AxisList& letters, std::size_t rank) {
  std::vector<std::size_t> axes;
  for (const Axis token : {Axis::L, Axis::N, Axis::S}) {
    if (!letters.contains(token)) continue;
    for (std::size_t k = 0; k < rank; ++k)
      if (letters[k] == token || letters[k] == Axis::B || letters[k] == Axis::layer)
        axes.push_back(k);
    return axes;
  }
  for (std::size_t k = 0; k + 1 < rank; ++k) axes.push_back(k);
  return axes;
}

}  // namespace attn
