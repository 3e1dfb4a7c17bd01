#include "attn/io/npy.h"

#include <bit>
#include <cstdint>
#include <xtensor/xnoalias.hpp>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/bytes.h"
#include "attn/io/elements.h"
#include "attn/io/npy_header.h"
#include "attn/tensor/array.h"

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

/// That the file has as many bytes as the shape asks for, and no more.
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
    fail(name, asked + ", and " + std::to_string(available - bytes) +
                   " more follow: expected one array and nothing after it");
}

Tensor row_major(const Tensor& fortran) {
  Tensor result(fortran.dtype(), fortran.shape());
  visit_bits(fortran.dtype(), [&]<class Bits>(Bits) {
    const auto columns = xt::adapt<xt::layout_type::column_major>(
        reinterpret_cast<const Bits*>(fortran.raw()), fortran.size(), xt::no_ownership(),
        extents_of(fortran));
    auto rows = xt::adapt(reinterpret_cast<Bits*>(result.mutable_raw()), result.size(),
                          xt::no_ownership(), extents_of(result));
    xt::noalias(rows) = columns;
  });
  return result;
}

}  // namespace

bool is_npy(std::span<const std::byte> bytes) { return text_of(bytes).starts_with(kMagic); }

Tensor read_npy(const FileBytes& file, const std::string& name) {
  const NpyHeader header = parse_npy_header(file.bytes(), name);
  require_bytes(header, file.size - header.data_offset, name);
  Tensor tensor = elements_at(file, header.data_offset, header.dtype, header.shape);
  if (header.big_endian != (std::endian::native == std::endian::big) && size_of(header.dtype) > 1)
    tensor = byte_swapped(std::move(tensor));
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
  // NumPy leaves room for the first axis to grow to 21 digits in place.
  if (!shape.empty()) text.append(21 - std::to_string(shape[0]).size(), ' ');
  // At least one space, even where the length is a multiple of 64 already: as NumPy does.
  text.append(64 - (kMagic.size() + 4 + text.size() + 1) % 64, ' ');
  text += '\n';
  std::string header = std::string(kMagic) + '\1' + '\0';
  append_little_endian(header, static_cast<std::uint16_t>(text.size()));
  return header + text;
}

DType npy_dtype(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

Pieces npy_pieces(const TensorSpec& spec) { return {{npy_header(spec.dtype, spec.shape), 0}}; }

void write_npy(const Tensor& tensor, OutputFile& out) {
  const TensorSpec spec{"", npy_dtype(tensor.dtype()), tensor.shape()};
  write_pieces(npy_pieces(spec), {spec}, {elements_of(tensor, spec.dtype)}, out);
}

}  // namespace attn
