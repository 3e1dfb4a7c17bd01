#include "attn/io/npy.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <xtensor/xnoalias.hpp>

#include "attn/io/bytes.h"
#include "attn/io/npy_header.h"
#include "attn/tensor/array.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
  throw Error(ErrorKind::data, printable(name) + ": " + problem);
}

/// Calls f with the unsigned integer that is as wide as the dtype: bits are moved, never values, so
/// that signalling NaNs survive.
template <class F>
void visit_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

std::size_t count_of(const Shape& shape, const std::string& name) {
  try {
    return element_count(shape);
  } catch (const Error& error) {
    fail(name, error.what());
  }
}

/// The bytes of the elements, if the file has as many as the shape asks for and no more.
std::size_t checked_bytes(const NpyHeader& header, std::size_t available, const std::string& name) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count_of(header.shape, name), size_of(header.dtype), &bytes))
    fail(name, "shape " + to_string(header.shape) + " has more than 2^64 bytes");
  const std::string asked = "shape " + to_string(header.shape) + " of " +
                            std::string(name_of(header.dtype)) + " takes " + std::to_string(bytes) +
                            " bytes";
  if (available < bytes)
    fail(name, asked + ", but only " + std::to_string(available) + " follow the header");
  if (available > bytes)
    fail(name, asked + ", and " + std::to_string(available - bytes) +
                   " more follow: expected one array and nothing after it");
  return bytes;
}

/// The elements as they stand in the file, shared with it where their alignment allows.
Tensor elements(const FileBytes& file, const NpyHeader& header, std::size_t bytes) {
  const std::byte* const start = file.data.get() + header.data_offset;
  if (reinterpret_cast<std::uintptr_t>(start) % size_of(header.dtype) == 0)
    return {header.dtype, header.shape, std::shared_ptr<const std::byte>(file.data, start)};
  Tensor copy(header.dtype, header.shape);
  if (bytes > 0) std::memcpy(copy.mutable_raw(), start, bytes);
  return copy;
}

Tensor byte_swapped(Tensor tensor) {
  visit_bits(tensor.dtype(), [&]<class Bits>(Bits) {
    std::byte* const data = tensor.mutable_raw();
    for (std::size_t i = 0; i < tensor.bytes(); i += sizeof(Bits))
      std::reverse(data + i, data + i + sizeof(Bits));
  });
  return tensor;
}

Tensor row_major(const Tensor& fortran) {
  Tensor result(fortran.dtype(), fortran.shape());
  visit_bits(fortran.dtype(), [&]<class Bits>(Bits) {
    const auto columns = xt::adapt<xt::layout_type::column_major>(
        reinterpret_cast<const Bits*>(fortran.raw()), fortran.size(), xt::no_ownership(),
        fortran.shape());
    auto rows = xt::adapt(reinterpret_cast<Bits*>(result.mutable_raw()), result.size(),
                          xt::no_ownership(), result.shape());
    xt::noalias(rows) = columns;
  });
  return result;
}

/// In a file any byte but 0 means true; in a tensor true is 1.
Tensor with_true_as_one(Tensor tensor) {
  const auto is_bool = [](std::byte byte) { return std::to_integer<int>(byte) < 2; };
  if (std::all_of(tensor.raw(), tensor.raw() + tensor.bytes(), is_bool)) return tensor;
  std::byte* const data = tensor.mutable_raw();
  std::transform(data, data + tensor.bytes(), data,
                 [](std::byte byte) { return std::byte{byte != std::byte{0}}; });
  return tensor;
}

}  // namespace

bool is_npy(std::span<const std::byte> bytes) { return text_of(bytes).starts_with(kMagic); }

Tensor read_npy(const FileBytes& file, const std::string& name) {
  const NpyHeader header = parse_npy_header(file.bytes(), name);
  const std::size_t bytes = checked_bytes(header, file.size - header.data_offset, name);
  Tensor tensor = elements(file, header, bytes);
  if (header.big_endian != (std::endian::native == std::endian::big) && size_of(header.dtype) > 1)
    tensor = byte_swapped(std::move(tensor));
  if (header.fortran_order && tensor.rank() > 1 && tensor.size() > 1) tensor = row_major(tensor);
  if (header.dtype == DType::boolean) tensor = with_true_as_one(std::move(tensor));
  return tensor;
}

std::string npy_header(DType dtype, const Shape& shape) {
  if (dtype == DType::bf16) dtype = DType::f32;
  const std::size_t size = size_of(dtype);
  const char kind = dtype == DType::boolean ? 'b'
                    : is_float(dtype)       ? 'f'
                    : is_signed(dtype)      ? 'i'
                                            : 'u';
  std::string text = std::string("{'descr': '") + (size == 1 ? '|' : '<') + kind +
                     std::to_string(size) +
                     "', 'fortran_order': False, 'shape': " + to_string(shape) + ", }";
  // NumPy leaves room for the first axis to grow to 21 digits in place.
  if (!shape.empty()) text.append(21 - std::to_string(shape[0]).size(), ' ');
  // At least one space, even where the length is a multiple of 64 already: as NumPy does.
  text.append(64 - (kMagic.size() + 4 + text.size() + 1) % 64, ' ');
  text += '\n';
  std::string header = std::string(kMagic) + '\1' + '\0';
  append_little_endian(header, static_cast<std::uint16_t>(text.size()));
  return header + text;
}

NpyBytes npy_bytes(const Tensor& tensor) {
  Tensor elements = tensor.dtype() == DType::bf16 ? cast(tensor, DType::f32) : tensor;
  if constexpr (std::endian::native == std::endian::big) elements = byte_swapped(elements);
  return {npy_header(elements.dtype(), elements.shape()), elements};
}

void write_npy(const Tensor& tensor, OutputFile& out) {
  const NpyBytes npy = npy_bytes(tensor);
  out.write(npy.header);
  out.write(npy.data());
}

}  // namespace attn
