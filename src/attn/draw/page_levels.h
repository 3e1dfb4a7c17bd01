// Reduced copies of a matrix for pages. A block of cells becomes its strongest cell, so that a
// single strong weight is visible at any size.
//
// Cells are 16-bit codes that are ordered by strength: the strongest cell of a block has the
// largest code. A code is 2 * rank + 1 for a negative value, otherwise 2 * rank. The ranks:
//   0           hidden
//   1           zero: a weight of exactly 0 that may be hidden
//   2 + h       a value; h are the bits of |value| / unit as IEEE 754 binary16
//   0x7FFF      NaN
// draw/page/codes.mjs has the same functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attn/draw/heat_map.h"

namespace attn {

/// A power of two such that largest / unit is at most 2^14. 1 for a largest magnitude of 0.
double code_unit(double largest);

/// The code of each cell of a row.
void strength_codes(const HeatRow& row, double unit, std::span<std::uint16_t> codes);

/// A matrix reduced by blocks of tall x wide cells.
struct PageLevel {
  std::size_t tall = 1, wide = 1;
  std::size_t rows = 0, columns = 0;  ///< blocks
  std::size_t cell_rows = 0;          ///< of the matrix
  std::vector<std::uint16_t> codes;   ///< rows x columns
  std::vector<std::uint16_t> strongest =
      {};  ///< of each column, of the rows of an incomplete block
};

/// A level of a matrix of rows x columns cells, all hidden.
PageLevel page_level(std::size_t rows, std::size_t columns, std::size_t tall, std::size_t wide);

/// Adds row `i` of the matrix, after the rows before it.
void add_row(PageLevel& level, std::size_t i, std::span<const std::uint16_t> codes);

struct BlockSize {
  std::size_t tall = 1, wide = 1;  ///< cells
};

/// The block size of the level for overviews, which has at most 64 rows and 4,096 blocks, or 32 and
/// 1,024 if there are more than 1,024 matrices. `rows` and `columns` are at least 1.
BlockSize overview_blocks(std::size_t matrices, std::size_t rows, std::size_t columns);

/// The block sizes of the other levels: squares of side 4, 16, ... while they have more cells than
/// the level for overviews.
std::vector<BlockSize> pyramid_blocks(std::size_t matrices, std::size_t rows, std::size_t columns);

/// The upper bytes of all codes, then the lower bytes; this order compresses better.
std::vector<std::byte> code_bytes(std::span<const std::uint16_t> codes);

}  // namespace attn
