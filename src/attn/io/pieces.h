// A file of tensors as its writer sees it: text, elements, text, elements, ... Where each stands is
// known from dtypes and shapes alone, so that elements may be written before those in front of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attn/io/output_file.h"
#include "attn/io/row_writer.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A tensor without its elements; `dtype` is the file's.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f64;
  Shape shape;
  std::uint64_t bytes() const { return std::uint64_t{element_count(shape)} * size_of(dtype); }
};

/// Text (a header), and behind it the elements of one of the tensors.
struct Piece {
  std::string text;
  std::optional<std::size_t> tensor;
};

/// What a format makes of tensors. `checksums` are the CRC-32 of each tensor's elements: no length
/// depends on them.
using Pieces = std::vector<Piece>;

/// Where each tensor's elements stand in the file.
std::vector<std::uint64_t> offsets_of(const Pieces& pieces, const std::vector<TensorSpec>& specs);

/// Elements in the file's dtype and byte order, or rows that are in the file already.
struct Elements {
  Tensor tensor;
  const RowWriter* rows = nullptr;
  std::uint32_t checksum(std::uint64_t bytes) const;
};

/// The tensor as a file of `dtype` holds it.
Elements elements_of(const Tensor& tensor, DType dtype);

std::vector<std::uint32_t> checksums_of(const std::vector<Elements>& elements,
                                        const std::vector<TensorSpec>& specs);

/// Writes all of the file but the rows that are in it. Errors: as OutputFile.
void write_pieces(const Pieces& pieces, const std::vector<TensorSpec>& specs,
                  const std::vector<Elements>& elements, OutputFile& out);

}  // namespace attn
