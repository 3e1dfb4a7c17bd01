#include "attn/api/input_tensor.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/dtype.h"
#include "attn/base/error.h"
#include "attn/base/number_code.h"
#include "attn/base/text.h"
#include "attn/io/elements.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {
namespace {

/// Bytes between elements along each axis of a contiguous tensor.
std::vector<std::ptrdiff_t> contiguous_strides(const Shape& shape, std::size_t element) {
  std::vector<std::ptrdiff_t> strides(shape.size());
  auto stride = static_cast<std::ptrdiff_t>(element);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= static_cast<std::ptrdiff_t>(shape[axis]);
  }
  return strides;
}

/// Strides of axes of length 1 are never used, so they need not agree.
bool is_contiguous(const attn_tensor& given, const Shape& shape, std::size_t element) {
  if (given.strides == nullptr) return true;
  const std::vector<std::ptrdiff_t> strides = contiguous_strides(shape, element);
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != 1 && given.strides[axis] != strides[axis]) return false;
  return true;
}

bool has_only_bits(const std::byte* data, std::size_t count) {
  return std::all_of(data, data + count,
                     [](std::byte value) { return std::to_integer<unsigned>(value) <= 1; });
}

/// Copies the elements below `axis` that start at `from`; returns the end of what was written.
std::byte* copy_axis(const std::byte* from, const Shape& shape, const std::ptrdiff_t* strides,
                     std::size_t axis, std::size_t element, std::byte* to) {
  if (axis == shape.size()) {
    std::memcpy(to, from, element);
    return to + element;
  }
  if (axis + 1 == shape.size() && strides[axis] == static_cast<std::ptrdiff_t>(element)) {
    std::memcpy(to, from, shape[axis] * element);
    return to + shape[axis] * element;
  }
  for (std::size_t i = 0; i < shape[axis]; ++i, from += strides[axis])
    to = copy_axis(from, shape, strides, axis + 1, element, to);
  return to;
}

Tensor copied_tensor(const attn_tensor& given, DType dtype, const Shape& shape) {
  const std::size_t element = size_of(dtype);
  const std::vector<std::ptrdiff_t> contiguous = contiguous_strides(shape, element);
  const std::ptrdiff_t* strides = given.strides == nullptr ? contiguous.data() : given.strides;
  Tensor copy(dtype, shape);
  std::byte* const data = copy.mutable_raw();
  copy_axis(static_cast<const std::byte*>(given.data), shape, strides, 0, element, data);
  if (dtype == DType::boolean)
    std::transform(data, data + copy.size(), data,
                   [](std::byte value) { return std::byte{value != std::byte{0}}; });
  return copy;
}

/// Takes the byte order off the start of a dtype; whether it is not this machine's.
bool takes_other_order(std::string_view& dtype) {
  const char order = dtype.empty() ? '\0' : dtype.front();
  if (order != '<' && order != '>') return false;
  dtype.remove_prefix(1);
  return (order == '<') != (std::endian::native == std::endian::little);
}

Tensor numbers_of_codes(const Tensor& elements, std::optional<Code> code) {
  return code ? coded_tensor(*code, elements) : elements;
}

}  // namespace

Tensor input_tensor(const attn_tensor& given, ReadBudget& budget, std::size_t& copied) {
  const std::string name = given.name;
  if (given.dtype == nullptr || (given.shape == nullptr && given.rank > 0))
    fail_usage({.subject = name, .message = "has no dtype or no shape"});
  std::string_view dtype_text = given.dtype;
  const bool is_swapped = takes_other_order(dtype_text);
  const std::optional<Code> code = code_named(dtype_text);
  const std::optional<DType> dtype = code ? DType::u8 : dtype_named(dtype_text);
  if (!dtype)
    fail_data({.subject = name,
               .expected = "float16, bfloat16, float32, float64, an 8-bit float such as "
                           "float8_e4m3fn, int8 to int64, uint8 to uint64 or bool",
               .found = "dtype " + printable(given.dtype)});
  if (given.rank > Shape::kMaxAxes)
    fail_data({.subject = name,
               .expected = "at most " + std::to_string(Shape::kMaxAxes) + " axes",
               .found = std::to_string(given.rank)});
  const Shape shape(given.shape, given.shape + given.rank);
  const std::size_t count = within(name, [&] { return element_count(shape); });
  if (count == 0) return {code ? DType::f32 : *dtype, shape};
  if (given.data == nullptr) fail_usage({.subject = name, .message = "has no data"});
  const auto* data = static_cast<const std::byte*>(given.data);
  const std::size_t element = size_of(*dtype);
  const bool in_place = (!is_swapped || element == 1) &&
                        reinterpret_cast<std::uintptr_t>(data) % element == 0 &&
                        is_contiguous(given, shape, element) &&
                        (*dtype != DType::boolean || has_only_bits(data, count));
  if (in_place) return numbers_of_codes({*dtype, shape, {std::shared_ptr<void>(), data}}, code);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, element, &bytes))
    bytes = std::numeric_limits<std::size_t>::max();
  budget.charge(bytes, name, "copy");
  copied += bytes;
  Tensor copy = copied_tensor(given, *dtype, shape);
  if (code) return numbers_of_codes(copy, code);
  return is_swapped ? byte_swapped(std::move(copy)) : copy;
}

}  // namespace attn
