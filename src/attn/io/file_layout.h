// The layout of an output file: text, elements, text, elements, ... All offsets follow from dtypes
// and shapes, so elements can be written in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/row_writer.h"
#include "attn/io/staged_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A tensor without its elements; `dtype` is the one in the file.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f64;
  Shape shape;
  std::uint64_t bytes() const { return std::uint64_t{element_count(shape)} * size_of(dtype); }
};

/// Text (a header), followed by the elements of one tensor, if any.
struct LayoutPart {
  std::string text;
  std::optional<std::size_t> tensor;
};

/// Texts that a file stores beside its tensors, by key. The key is "" if a file has one text.
using FileMetadata = std::vector<std::pair<std::string, std::string>>;

/// The whole file. Functions that make a layout may take the CRC-32 of each tensor's elements; no
/// length depends on these checksums.
using FileLayout = std::vector<LayoutPart>;

/// The offset of each tensor's elements in the file.
std::vector<std::uint64_t> offsets_of(const FileLayout& layout,
                                      const std::vector<TensorSpec>& specs);

/// Elements in the file's dtype and byte order, or rows that were already written to the file.
struct Elements {
  Tensor tensor;
  const RowWriter* rows = nullptr;
  std::uint32_t checksum(std::uint64_t bytes) const;
};

/// The tensor converted to `dtype` and little-endian byte order.
Elements elements_of(const Tensor& tensor, DType dtype);

std::vector<std::uint32_t> checksums_of(const std::vector<Elements>& elements,
                                        const std::vector<TensorSpec>& specs);

/// Writes the file except for rows that were already written. Errors: as OutputFile.
void write_layout(const FileLayout& layout, const std::vector<TensorSpec>& specs,
                  const std::vector<Elements>& elements, OutputFile& out);

}  // namespace attn
