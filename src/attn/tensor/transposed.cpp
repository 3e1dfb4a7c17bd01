#include "attn/tensor/transposed.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

namespace attn {
namespace {

/// In square blocks, whose rows are one or a few cache lines. A line is read and written as a
/// whole: if the length of a row is a power of 2, lines of neighbouring rows evict each other.
template <class Bits>
void transpose(const std::byte* from, std::byte* to, std::size_t rows, std::size_t columns) {
  constexpr std::size_t kBlock = 32;
  const auto* const in = reinterpret_cast<const Bits*>(from);
  auto* const out = reinterpret_cast<Bits*>(to);
  std::array<std::array<Bits, kBlock>, kBlock> block;
  for (std::size_t left = 0; left < columns; left += kBlock)
    for (std::size_t top = 0; top < rows; top += kBlock) {
      const std::size_t tall = std::min(kBlock, rows - top),
                        wide = std::min(kBlock, columns - left);
      for (std::size_t i = 0; i < tall; ++i)
        for (std::size_t j = 0; j < wide; ++j) block[j][i] = in[(top + i) * columns + left + j];
      for (std::size_t j = 0; j < wide; ++j)
        std::copy_n(block[j].begin(), tall, out + (left + j) * rows + top);
    }
}

}  // namespace

Tensor transposed_matrices(const Tensor& x) {
  Shape shape = x.shape();
  const std::size_t rank = shape.size(), rows = shape[rank - 2], columns = shape[rank - 1];
  std::swap(shape[rank - 2], shape[rank - 1]);
  if (rows <= 1 || columns <= 1) return x.reshaped(shape);
  Tensor result(x.dtype(), shape);
  const std::size_t size = size_of(x.dtype());
  const auto transpose_one = size == 1   ? transpose<std::uint8_t>
                             : size == 2 ? transpose<std::uint16_t>
                             : size == 4 ? transpose<std::uint32_t>
                                         : transpose<std::uint64_t>;
  for (std::size_t at = 0; at < result.bytes(); at += rows * columns * size)
    transpose_one(x.raw() + at, result.mutable_raw() + at, rows, columns);
  return result;
}

Tensor TransposedMatrix::in_type(DType dtype) const {
  const Shape& shape = stored_.shape();
  return Tensor(dtype, {shape[1], shape[0]},
                std::make_shared<const TransposedMatrix>(stored_, dtype, release_));
}

void TransposedMatrix::release(std::size_t first, std::size_t count) const {
  if (!release_) return;
  const Tensor part = stored_.range(first, count);
  release_({part.raw(), part.bytes()});
}

const std::byte* TransposedMatrix::data() const {
  const std::lock_guard lock(mutex_);
  if (!all_) {
    all_ = cast(transposed_matrices(stored_), dtype_);
    release(0, stored_.shape()[0]);
  }
  return all_->raw();
}

Tensor deferred_transpose(const Tensor& matrix, const ReleasePages& release) {
  constexpr std::size_t kLeastBytes = 65536;  // fewer are transposed in less time than they save
  const bool is_deferred = is_float(matrix.dtype()) && matrix.bytes() >= kLeastBytes &&
                           std::min(matrix.shape()[0], matrix.shape()[1]) > 1 && !matrix.rows();
  const TransposedMatrix now(matrix, matrix.dtype(), release);
  if (is_deferred) return now.in_type(matrix.dtype());
  const Tensor result = transposed_matrices(matrix);
  now.release(0, matrix.shape()[0]);
  return result;
}

}  // namespace attn
