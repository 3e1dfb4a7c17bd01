#include "attn/draw/picture.h"

#include <charconv>

namespace attn {

std::size_t cells_of(const Picture& picture) {
  std::size_t count = 0;
  for (const auto& shape : picture.shapes)
    if (const auto* cells = std::get_if<CellsShape>(&shape)) count += cells->cells.size();
  return count;
}

std::vector<CellRun> runs_of(const CellsShape& shape) {
  std::vector<CellRun> runs;
  for (std::size_t i = 0; i < shape.rows; ++i)
    for (std::size_t j = 0; j < shape.columns; ++j) {
      const std::size_t cell = i * shape.columns + j;
      const std::uint8_t code = shape.cells[cell];
      if (j > 0 && runs.back().code == code)
        ++runs.back().count;
      else
        runs.push_back({code, static_cast<std::uint32_t>(cell), 1});
    }
  return runs;
}

std::string length_text(double value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 2);
  std::string out(text.data(), end.ptr);
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

}  // namespace attn
