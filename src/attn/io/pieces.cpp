#include "attn/io/pieces.h"

#include "attn/base/error.h"
#include "attn/io/elements.h"

namespace attn {

std::vector<std::uint64_t> offsets_of(const Pieces& pieces, const std::vector<TensorSpec>& specs) {
  std::vector<std::uint64_t> offsets(specs.size());
  std::uint64_t end = 0;
  for (const Piece& piece : pieces) {
    end += piece.text.size();
    if (!piece.tensor) continue;
    offsets[*piece.tensor] = end;
    end += specs[*piece.tensor].bytes();
  }
  return offsets;
}

std::uint32_t Elements::checksum(std::uint64_t bytes) const {
  return rows != nullptr ? rows->checksum(bytes) : crc32_of({tensor.raw(), tensor.bytes()});
}

Elements elements_of(const Tensor& tensor, DType dtype) {
  return {little_endian_elements(cast(tensor, dtype))};
}

std::vector<std::uint32_t> checksums_of(const std::vector<Elements>& elements,
                                        const std::vector<TensorSpec>& specs) {
  std::vector<std::uint32_t> checksums;
  for (std::size_t i = 0; i < specs.size(); ++i)
    checksums.push_back(elements[i].checksum(specs[i].bytes()));
  return checksums;
}

void write_pieces(const Pieces& pieces, const std::vector<TensorSpec>& specs,
                  const std::vector<Elements>& elements, OutputFile& out) {
  const std::vector<std::uint64_t> offsets = offsets_of(pieces, specs);
  for (const Piece& piece : pieces) {
    out.write(piece.text);
    if (!piece.tensor) continue;
    const auto& [tensor, rows] = elements[*piece.tensor];
    if (rows == nullptr) {
      out.write(std::span(tensor.raw(), tensor.bytes()));
      continue;
    }
    const std::uint64_t bytes = specs[*piece.tensor].bytes();
    if (rows->start() != offsets[*piece.tensor] || rows->written() != bytes)
      throw Error(ErrorKind::internal, "rows are missing, or stand where they should not");
    out.skip(bytes);
  }
}

}  // namespace attn
