// CSV (RFC 4180) for one matrix: rows are lines, cells are numbers separated by commas.
//
// Blank lines at the end are ignored; a first line of names (any cell that is not a number) is a
// header and skipped; quotes round a cell are allowed. Integers only: int64; otherwise float64.
// "nan", "inf", "-inf", "NaN", "Infinity", "-Infinity" are numbers. Ragged rows, empty cells, text
// below the header, ';' separators and NUL bytes are errors that name line and column.
#pragma once

#include <string>
#include <vector>

#include "attn/io/file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Always a 2-D tensor. Errors: data.
Tensor read_csv(const FileBytes& file, const std::string& name);

/// Rank 0 to 2 (a vector is one row); floats in the fewest digits that read back as the same value.
std::string to_csv(const Tensor& tensor, const std::string& name);

/// With names for the rows and columns: the header starts with an empty cell.
std::string to_csv(const Tensor& tensor, const std::string& name,
                   const std::vector<std::string>& rows, const std::vector<std::string>& columns);

}  // namespace attn
