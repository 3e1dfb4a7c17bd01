#include "attn/io/npy.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/bytes.h"
#include "attn/io/elements.h"
#include "attn/io/npy_header.h"

namespace attn {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
  throw Error(ErrorKind::data, Problem{.where = {name}, .message = problem});
}

std::size_t count_of(const Shape& shape, const std::string& name) {
  try {
    return element_count(shape);
  } catch (const Error& error) {
    fail(name, error.what());
  }
}

/// Checks that the file has exactly as many bytes as the shape requires.
void require_bytes(const NpyHeader& header, std::size_t available, const std::string& name) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count_of(header.shape, name), size_of(header.dtype), &bytes))
    fail(name, "shape " + to_string(header.shape) + " has more than 2^64 bytes");
  const std::string asked = "shape " + to_string(header.shape) + " of " +
                            std::string(name_of(header.dtype)) + " takes " + std::to_string(bytes) +
                            " bytes";
  if (available < bytes)
    fail(name, asked + ", but only " + std::to_string(available) + " follow the header");
  if (available > bytes)
    fail(name, asked + ", and " + std::to_string(available - bytes) + " more follow the array");
}

/// Copies a column-major array of at least two axes in row-major order.
template <class Bits>
void copy_row_major(const Bits* from, Bits* to, const Shape& shape) {
  const std::size_t rows = shape.front(), columns = shape.back();
  std::size_t middle = 1;  // elements of the axes between the first and the last
  for (std::size_t axis = 1; axis + 1 < shape.size(); ++axis) middle *= shape[axis];
  constexpr std::size_t kTile = 32;  // keeps the cache lines of a tile in the first-level cache
  for (std::size_t m = 0; m < middle; ++m) {
    // m counts the middle axes in row-major order; `source` is the same element in column-major
    // order.
    std::size_t source = 0, rest = m;
    for (std::size_t axis = shape.size() - 1; axis-- > 1;) {
      std::size_t stride = 1;
      for (std::size_t before = 1; before < axis; ++before) stride *= shape[before];
      source += rest % shape[axis] * stride;
      rest /= shape[axis];
    }
    const Bits* const block = from + source * rows;
    Bits* const target = to + m * columns;
    for (std::size_t i = 0; i < rows; i += kTile)
      for (std::size_t j = 0; j < columns; j += kTile)
        for (std::size_t row = i; row < std::min(i + kTile, rows); ++row)
          for (std::size_t column = j; column < std::min(j + kTile, columns); ++column)
            target[row * middle * columns + column] = block[column * rows * middle + row];
  }
}

Tensor row_major(const Tensor& fortran) {
  Tensor result(fortran.dtype(), fortran.shape());
  visit_bits(fortran.dtype(), [&]<class Bits>(Bits) {
    copy_row_major(reinterpret_cast<const Bits*>(fortran.raw()),
                   reinterpret_cast<Bits*>(result.mutable_raw()), fortran.shape());
  });
  return result;
}

}  // namespace

bool is_npy(std::span<const std::byte> bytes) { return text_of(bytes).starts_with(kMagic); }

Tensor read_npy(const FileBytes& file, const std::string& name, ReadBudget* budget) {
  const NpyHeader header = parse_npy_header(file.bytes(), name);
  require_bytes(header, file.size - header.data_offset, name);
  const bool is_swapped = header.big_endian != (std::endian::native == std::endian::big);
  // Elements are copied where the file's cannot be used as they are.
  MemoryCharge copies(budget, name);
  if (is_swapped || header.fortran_order || header.dtype == DType::boolean ||
      !is_aligned(file, header.data_offset, header.dtype))
    copies.add(file.size - header.data_offset);
  if (header.fortran_order) copies.add(file.size - header.data_offset);
  copies.keep();
  Tensor tensor = elements_at(file, header.data_offset, header.dtype, header.shape);
  if (is_swapped && size_of(header.dtype) > 1) tensor = byte_swapped(std::move(tensor));
  if (header.fortran_order && tensor.rank() > 1 && tensor.size() > 1) tensor = row_major(tensor);
  return tensor;
}

std::string npy_header(DType dtype, const Shape& shape) {
  dtype = npy_dtype(dtype);
  const std::size_t size = size_of(dtype);
  const char kind = dtype == DType::boolean ? 'b'
                    : is_float(dtype)       ? 'f'
                    : is_signed(dtype)      ? 'i'
                                            : 'u';
  std::string text = std::string("{'descr': '") + (size == 1 ? '|' : '<') + kind +
                     std::to_string(size) +
                     "', 'fortran_order': False, 'shape': " + to_string(shape) + ", }";
  // NumPy leaves space for the first axis to grow to 21 digits in place.
  if (!shape.empty()) text.append(21 - std::to_string(shape[0]).size(), ' ');
  // At least one space, even if the length is a multiple of 64, as in NumPy.
  text.append(64 - (kMagic.size() + 4 + text.size() + 1) % 64, ' ');
  text += '\n';
  std::string header = std::string(kMagic) + '\1' + '\0';
  append_little_endian(header, static_cast<std::uint16_t>(text.size()));
  return header + text;
}

DType npy_dtype(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

FileLayout npy_layout(const TensorSpec& spec) { return {{npy_header(spec.dtype, spec.shape), 0}}; }

void write_npy(const Tensor& tensor, OutputFile& out) {
  const TensorSpec spec{"", npy_dtype(tensor.dtype()), tensor.shape()};
  write_layout(npy_layout(spec), {spec}, {elements_of(tensor, spec.dtype)}, out);
}

}  // namespace attn
