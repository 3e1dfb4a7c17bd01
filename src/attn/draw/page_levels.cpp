#include "attn/draw/page_levels.h"

#include <algorithm>
#include <cmath>

#include "attn/base/dtype.h"

namespace attn {
namespace {

std::size_t blocks_in(std::size_t count, std::size_t size) { return (count + size - 1) / size; }

std::uint16_t strength_code(double value, CellKind kind, double unit) {
  constexpr unsigned kZeroRank = 1, kFirstValue = 2, kNanRank = 0x7FFF;
  switch (kind) {
    case CellKind::hidden:
      return 0;
    case CellKind::zero:
      return 2 * kZeroRank;
    case CellKind::nan:
      return 2 * kNanRank;
    case CellKind::value:
      break;
  }
  const unsigned rank = kFirstValue + Half(std::abs(value) / unit).bits;
  return static_cast<std::uint16_t>(2 * rank + (value < 0 ? 1 : 0));
}

}  // namespace

double code_unit(double largest) {
  constexpr int kTopExponent = 14;
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  return std::ldexp(1.0, std::max(exponent - kTopExponent, -1021));
}

void strength_codes(const HeatRow& row, double unit, std::span<std::uint16_t> codes) {
  for (std::size_t j = 0; j < codes.size(); ++j)
    codes[j] = strength_code(row.values[j], row.kinds[j], unit);
}

PageLevel page_level(std::size_t rows, std::size_t columns, std::size_t tall, std::size_t wide) {
  PageLevel level{tall, wide, blocks_in(rows, tall), blocks_in(columns, wide), rows, {}};
  level.codes.assign(level.rows * level.columns, 0);
  return level;
}

void add_row(PageLevel& level, std::size_t i, std::span<const std::uint16_t> codes) {
  if (i % level.tall == 0) {
    level.strongest.assign(codes.begin(), codes.end());
  } else {
    for (std::size_t j = 0; j < codes.size(); ++j)
      level.strongest[j] = std::max(level.strongest[j], codes[j]);
  }
  if ((i + 1) % level.tall != 0 && i + 1 != level.cell_rows) return;
  const auto at = level.strongest.begin();
  std::uint16_t* const row = level.codes.data() + i / level.tall * level.columns;
  for (std::size_t block = 0; block < level.columns; ++block) {
    const std::size_t end = std::min((block + 1) * level.wide, codes.size());
    row[block] = *std::max_element(at + static_cast<std::ptrdiff_t>(block * level.wide),
                                   at + static_cast<std::ptrdiff_t>(end));
  }
}

BlockSize overview_blocks(std::size_t matrices, std::size_t rows, std::size_t columns) {
  const std::size_t side = matrices > 1024 ? 32 : 64;
  const std::size_t tall = blocks_in(rows, side);
  const std::size_t across = side * side / blocks_in(rows, tall);
  return {tall, blocks_in(columns, std::max<std::size_t>(across, 1))};
}

std::vector<BlockSize> pyramid_blocks(std::size_t matrices, std::size_t rows, std::size_t columns) {
  const auto cells = [&](const BlockSize& blocks) {
    return blocks_in(rows, blocks.tall) * blocks_in(columns, blocks.wide);
  };
  const std::size_t overview = cells(overview_blocks(matrices, rows, columns));
  std::vector<BlockSize> sizes;
  for (BlockSize blocks{4, 4}; cells(blocks) > overview; blocks.tall *= 4, blocks.wide *= 4)
    sizes.push_back(blocks);
  return sizes;
}

std::vector<std::byte> code_bytes(std::span<const std::uint16_t> codes) {
  std::vector<std::byte> bytes(2 * codes.size());
  for (std::size_t k = 0; k < codes.size(); ++k) {
    bytes[k] = static_cast<std::byte>(codes[k] >> 8);
    bytes[codes.size() + k] = static_cast<std::byte>(codes[k] & 0xFFu);
  }
  return bytes;
}

}  // namespace attn
