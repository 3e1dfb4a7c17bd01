#include "attn/compare/compare_axes.h"

#include <optional>

#include "attn/core/output_table.h"

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

/// `heads`: of a packed axis.
std::vector<PartAxis> part_axes(const AxisList& letters, const Shape& shape, std::size_t heads) {
  std::vector<PartAxis> parts;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    const Axis letter = letters[k];
    if (letter == Axis::B)
      parts.push_back({"batch", shape[k], stride_of(shape, k)});
    else if (is_head(letter))
      parts.push_back({"head", shape[k], stride_of(shape, k)});
    else if (is_packed(letter) && heads > 0 && shape[k] % heads == 0)
      parts.push_back({"head", heads, shape[k] / heads});
  }
  return several(parts);
}

AxisList without(const AxisList& axes, bool (*is_dropped)(Axis)) {
  AxisList rest = {};
  for (const Axis axis : axes)
    if (!is_dropped(axis)) rest.insert(rest.size(), axis);
  return rest;
}

}  // namespace

TensorAxes axes_of_output(Output output, const Shape& shape, const Inputs& in,
                          const Options& options) {
  using enum Axis;
  AxisList letters = row_of(output).axes;
  const std::size_t rank = shape.size();
  if (rank == 4 && letters == AxisList{B, L, HDv})
    letters = options.layout == Layout::blhd ? AxisList{B, L, H, Dv} : AxisList{B, H, L, Dv};
  // Without heads or batches, the output lacks that axis.
  if (letters.size() > rank && in.H == 1) letters = without(letters, is_head);
  if (letters.size() > rank) letters = without(letters, [](Axis axis) { return axis == Axis::B; });
  if (letters.size() != rank) return {};
  return {letters, part_axes(letters, shape, in.H)};
}

TensorAxes axes_by_name(const std::string& name, const Shape& shape) {
  const std::optional<Output> output = output_named(name);
  if (output && row_of(*output).axes.size() == shape.size())
    return {row_of(*output).axes, part_axes(row_of(*output).axes, shape, 0)};
  std::vector<PartAxis> parts;
  for (std::size_t axis = 0; axis + 2 < shape.size(); ++axis)
    parts.push_back({"axis " + std::to_string(axis), shape[axis], stride_of(shape, axis)});
  return {{}, several(parts)};
}

}  // namespace attn
