#include "attn/cli/axis_names.h"

#include <algorithm>
#include <optional>

#include "attn/core/output_table.h"

namespace attn {
namespace {

constexpr bool is_head(Axis axis) { return axis == Axis::H || axis == Axis::G; }
constexpr bool is_packed(Axis axis) {
  return axis == Axis::HD || axis == Axis::GD || axis == Axis::GDv || axis == Axis::HDv;
}
constexpr bool is_key(Axis axis) { return axis == Axis::S || axis == Axis::N || axis == Axis::P; }

/// The axes of an output, or of an input that has a row or column for each token; none for others.
AxisList axes_of(const std::string& name) {
  if (const auto output = output_named(name)) return row_of(*output).axes;
  const auto input = input_named(name);
  if (!input) return {};
  const InputKind kind = row_of(*input).kind;
  if (kind != InputKind::factor && kind != InputKind::mask) return {};
  for (const Axis axis : row_of(*input).axes)
    if (axis == Axis::L || is_key(axis)) return row_of(*input).axes;
  return {};
}

/// Whether the result has a job, and the job does not set heads.
bool without_heads(const ResultFile& result) {
  return result.made_by.find("job") != nullptr && result.job("heads") == nullptr;
}

/// The axes of this tensor. Heads are an axis only if the job sets heads.
AxisList axes_in(const ResultFile& result, const std::string& name) {
  const std::size_t rank = result.tensors.at(name).rank();
  AxisList axes = axes_of(name);
  const bool packed = !axes.empty() && is_packed(axes.back());
  if (packed && rank == 4) {  // heads are an axis
    const Json* layout = result.job("layout");
    const auto* word = layout == nullptr ? nullptr : layout->get<std::string>();
    axes.insert(word != nullptr && *word == "blhd" ? 2 : 1, Axis::H);
  } else if (without_heads(result) && rank < axes.size()) {
    AxisList rest = {};
    for (const Axis axis : axes)
      if (!is_head(axis)) rest.insert(rest.size(), axis);
    return rest;
  }
  return axes;
}

std::string word_for(std::optional<Axis> axis, const char* otherwise) {
  if (!axis) return otherwise;
  return axis == Axis::L   ? "queries"
         : is_key(*axis)   ? "keys"
         : is_head(*axis)  ? "heads"
         : axis == Axis::B ? "batches"
                           : otherwise;
}

}  // namespace

AxisNames axis_names(const ResultFile& result, const std::string& name) {
  AxisNames names;
  const std::size_t rank = result.tensors.at(name).rank();
  const AxisList axes = axes_in(result, name);
  const auto from_end = [&](std::size_t place) -> std::optional<Axis> {
    if (place > std::min(rank, axes.size())) return std::nullopt;
    return axes[axes.size() - place];
  };
  const std::optional<Axis> width = from_end(1);
  names.columns = word_for(width, "columns");
  names.rows = word_for(from_end(2), "rows");
  const bool has_tokens = width == Axis::M || width == Axis::Mk || width == Axis::Mv;
  if (has_tokens && names.rows != "rows") names.rows = "tokens";
  names.known = !axes.empty();
  const bool batched = names.known ? from_end(3) == Axis::B : without_heads(result) && rank == 3;
  if (batched) names.third = "batch";
  return names;
}

}  // namespace attn
