#include "attn/io/tensor_part.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

constexpr std::string_view kTransposed = ".T";

/// What one entry between brackets selects.
struct AxisPart {
  std::optional<std::int64_t> first, last;  ///< `last` is not included; nullopt: to the end
  bool is_single = false;                   ///< `first` alone
  std::int64_t parts = 0;  ///< first and last are parts of so many; 0: they are elements
  std::int64_t groups = 1;
  bool drops_axis() const { return is_single && parts == 0; }
};

[[noreturn]] void refuse_part(const std::string& part, const std::string& message) {
  fail_data("'" + printable(part) + "': " + message);
}

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Reads one entry between brackets.
class AxisPartReader {
 public:
  AxisPartReader(std::string_view text, const std::string& part)
      : text_(without_spaces(text)), part_(part) {}

  AxisPart read() {
    AxisPart axis;
    axis.first = number();
    axis.is_single = !take(":");
    if (axis.is_single && !axis.first) refuse();
    if (!axis.is_single) axis.last = number();
    if (take("/")) {
      axis.parts = count();
      if (take("in")) axis.groups = count();
    }
    if (!text_.empty()) refuse();
    return axis;
  }

 private:
  bool take(std::string_view word) {
    text_ = without_spaces(text_);
    if (!text_.starts_with(word)) return false;
    text_ = without_spaces(text_.substr(word.size()));
    return true;
  }

  std::optional<std::int64_t> number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) refuse();
    if (error != std::errc()) return std::nullopt;
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return value;
  }

  std::int64_t count() {
    const std::optional<std::int64_t> value = number();
    if (!value || *value < 1) refuse();
    return *value;
  }

  [[noreturn]] void refuse() const {
    refuse_part(part_, "expected an index, I:J, I/N or I/N in G for each axis, such as [:, 0:768]");
  }

  std::string_view text_;
  const std::string& part_;
};

/// The ranges of an axis of this length, in order and without overlaps.
std::vector<ElementRange> ranges_of(const AxisPart& axis, std::size_t length, std::size_t number,
                                    const std::string& part, MemoryCharge& charge) {
  const std::string which = "axis " + std::to_string(number) + " has ";
  const auto total = static_cast<std::int64_t>(length);
  std::int64_t units = total, unit = 1, pieces = 0;
  if (axis.parts > 0) {
    if (__builtin_mul_overflow(axis.parts, axis.groups, &pieces) || pieces > total ||
        total % pieces != 0)
      refuse_part(
          part,
          which + counted(length, "element") + ", which cannot be divided into " +
              counted(static_cast<std::size_t>(axis.parts), "equal part") +
              (axis.groups > 1 ? " in each of " + std::to_string(axis.groups) + " groups" : ""));
    units = axis.parts, unit = total / pieces;
  }
  const auto position = [&](std::int64_t index) { return index < 0 ? index + units : index; };
  const std::int64_t first = position(axis.first.value_or(0));
  const bool is_inside = first >= 0 && first < units + (axis.is_single ? 0 : 1);
  const std::int64_t last = !is_inside       ? units
                            : axis.is_single ? first + 1
                                             : position(axis.last.value_or(units));
  if (!is_inside || last < 0 || last > units) {
    const std::string wrong = std::to_string(is_inside ? *axis.last : *axis.first);
    refuse_part(part,
                axis.parts > 0
                    ? "part " + wrong + " of " + std::to_string(units) + " is out of range"
                    : "index " + wrong + " is out of range: " + which + counted(length, "element"));
  }
  if (first > last) refuse_part(part, "expected I <= J in I:J");
  charge.add(static_cast<std::size_t>(axis.groups), sizeof(ElementRange));
  std::vector<ElementRange> ranges;
  ranges.reserve(static_cast<std::size_t>(axis.groups));
  for (std::int64_t group = 0; group < axis.groups; ++group)
    ranges.push_back({static_cast<std::size_t>((group * units + first) * unit),
                      static_cast<std::size_t>((group * units + last) * unit)});
  return ranges;
}

/// The elements of these ranges of an axis.
Tensor taken(const Tensor& tensor, std::size_t axis, const std::vector<ElementRange>& ranges,
             MemoryCharge& charge) {
  Shape shape = tensor.shape();
  const std::size_t length = shape[axis];
  std::size_t kept = 0, outer = 1, row = size_of(tensor.dtype());
  for (const ElementRange& range : ranges) kept += range.last - range.first;
  if (kept == length) return tensor;
  shape[axis] = kept;
  for (std::size_t i = 0; i < axis; ++i) outer *= shape[i];
  for (std::size_t i = axis + 1; i < shape.size(); ++i) row *= shape[i];
  if (axis == 0 && ranges.size() == 1 && kept > 0 && length % kept == 0 &&
      ranges[0].first % kept == 0) {  // shares the memory
    Shape split = shape;
    split.insert(split.begin(), length / kept);
    return tensor.reshaped(split).at(ranges[0].first / kept);
  }
  charge.add(outer * kept, row);
  Tensor result(tensor.dtype(), shape);
  if (result.size() == 0) return result;
  std::byte* to = result.mutable_raw();
  for (std::size_t i = 0; i < outer; ++i)
    for (const ElementRange& range : ranges) {
      const std::size_t bytes = (range.last - range.first) * row;
      std::memcpy(to, tensor.raw() + (i * length + range.first) * row, bytes);
      to += bytes;
    }
  return result;
}

/// `list` is the text between brackets, for a tensor of this shape.
std::vector<AxisPart> axis_parts(std::string_view list, const Shape& shape,
                                 const std::string& part) {
  std::vector<AxisPart> axes;
  for (std::size_t start = 0; start <= list.size();) {
    const std::size_t comma = std::min(list.find(',', start), list.size());
    axes.push_back(AxisPartReader(list.substr(start, comma - start), part).read());
    start = comma + 1;
  }
  if (axes.size() > shape.size())
    refuse_part(part, "shape " + to_string(shape) + " has fewer than " +
                          std::to_string(axes.size()) + " axes");
  return axes;
}

Tensor sliced(const Tensor& tensor, std::string_view list, const std::string& part,
              MemoryCharge& charge) {
  const std::vector<AxisPart> axes = axis_parts(list, tensor.shape(), part);
  Tensor result = tensor;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    result = taken(result, axis, ranges_of(axes[axis], result.shape()[axis], axis, part, charge),
                   charge);
  Shape shape;
  for (std::size_t axis = 0; axis < result.rank(); ++axis)
    if (axis >= axes.size() || !axes[axis].drops_axis()) shape.push_back(result.shape()[axis]);
  return result.reshaped(shape);
}

Shape shape_of(const std::vector<AxisOfPart>& axes) {
  Shape shape;
  for (const AxisOfPart& axis : axes) shape.push_back(axis.length);
  return shape;
}

/// The axes that remain of `axes`.
std::vector<AxisOfPart> sliced(const std::vector<AxisOfPart>& axes, std::string_view list,
                               const std::string& part) {
  const Shape shape = shape_of(axes);
  const std::vector<AxisPart> selected = axis_parts(list, shape, part);
  MemoryCharge unlimited(nullptr, "");
  std::vector<AxisOfPart> kept;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    AxisOfPart axis = axes[i];
    if (i < selected.size()) {
      std::vector<ElementRange> ranges = ranges_of(selected[i], axis.length, i, part, unlimited);
      axis.length = 0;
      for (const ElementRange& range : ranges) axis.length += range.last - range.first;
      if (axis.length < shape[i]) axis.selections.push_back(std::move(ranges));
    }
    if (i >= selected.size() || !selected[i].drops_axis()) kept.push_back(std::move(axis));
  }
  return kept;
}

void require_matrix(const Shape& shape, const std::string& part) {
  if (shape.size() != 2)
    refuse_part(part, "expected a matrix to transpose, found shape " + to_string(shape));
}

}  // namespace

NamedPart split_part(const std::string& text) {
  std::size_t end = text.size();
  for (;;) {
    const std::string_view rest = std::string_view(text).substr(0, end);
    if (rest.ends_with(kTransposed)) {
      end -= kTransposed.size();
      continue;
    }
    const std::size_t open = rest.ends_with(']') ? rest.rfind('[') : std::string_view::npos;
    if (open == std::string_view::npos ||
        rest.substr(open + 1, end - open - 2).find(']') != std::string_view::npos)
      return {text.substr(0, end), text.substr(end)};
    end = open;
  }
}

Tensor part_of(const Tensor& tensor, const std::string& part, const std::string& name,
               ReadBudget* budget) {
  MemoryCharge charge(budget, name);
  Tensor result = tensor;
  for (std::string_view rest = part; !rest.empty();) {
    if (rest.starts_with(kTransposed)) {
      require_matrix(result.shape(), part);
      charge.add(result.bytes());
      result = transposed_matrices(result);
      rest.remove_prefix(kTransposed.size());
    } else {
      const std::size_t close = rest.find(']');
      result = sliced(result, rest.substr(1, close - 1), part, charge);
      rest.remove_prefix(close + 1);
    }
  }
  charge.keep();
  return result;
}

std::vector<AxisOfPart> axes_of_part(const Shape& shape, const std::string& part) {
  std::vector<AxisOfPart> axes;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) axes.push_back({axis, shape[axis]});
  for (std::string_view rest = part; !rest.empty();) {
    if (rest.starts_with(kTransposed)) {
      require_matrix(shape_of(axes), part);
      std::swap(axes[0], axes[1]);
      rest.remove_prefix(kTransposed.size());
    } else {
      const std::size_t close = rest.find(']');
      axes = sliced(axes, rest.substr(1, close - 1), part);
      rest.remove_prefix(close + 1);
    }
  }
  return axes;
}

Shape shape_of_part(const Shape& shape, const std::string& part) {
  return shape_of(axes_of_part(shape, part));
}

}  // namespace attn
