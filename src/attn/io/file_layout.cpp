#include "attn/io/file_layout.h"

#include "attn/base/error.h"
#include "attn/io/elements.h"

namespace attn {

std::vector<std::uint64_t> offsets_of(const FileLayout& layout,
                                      const std::vector<TensorSpec>& specs) {
  std::vector<std::uint64_t> offsets(specs.size());
  std::uint64_t end = 0;
  for (const LayoutPart& part : layout) {
    end += part.text.size();
    if (!part.tensor) continue;
    offsets[*part.tensor] = end;
    end += specs[*part.tensor].bytes();
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

void write_layout(const FileLayout& layout, const std::vector<TensorSpec>& specs,
                  const std::vector<Elements>& elements, OutputFile& out) {
  const std::vector<std::uint64_t> offsets = offsets_of(layout, specs);
  for (const LayoutPart& part : layout) {
    out.write(part.text);
    if (!part.tensor) continue;
    const auto& [tensor, rows] = elements[*part.tensor];
    if (rows == nullptr) {
      out.write(std::span(tensor.raw(), tensor.bytes()));
      continue;
    }
    const std::uint64_t bytes = specs[*part.tensor].bytes();
    if (rows->start() != offsets[*part.tensor] || rows->written() != bytes)
      throw Error(ErrorKind::internal, "rows are missing or at a wrong offset");
    out.skip(bytes);
  }
}

}  // namespace attn
