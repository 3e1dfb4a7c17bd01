// CSV (RFC 4180) for one matrix: rows are lines, cells are numbers separated by commas.
//
// Reading. Lines end in LF or CRLF; blank lines at the end are ignored; spaces and quotes round a
// cell are allowed. A first line without any number is a header and is skipped. A first line that
// begins with an empty cell is a header too, and says that the first column holds names, which are
// skipped as well: that is how tables with named rows are written here. All integers: int64 (or
// uint64 when one needs it); otherwise float64. "nan", "inf", "-inf", "NaN", "Infinity",
// "-Infinity" are numbers. Ragged rows, blank lines between rows, empty cells, text, hexadecimal,
// numbers that overflow, ';' separators and NUL bytes are errors that name line and column (the
// column counts cells).
#pragma once

#include <string>
#include <vector>

#include "attn/io/file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Always a 2-D tensor. Errors: data.
Tensor read_csv(const FileBytes& file, const std::string& name);

/// Rank 0 to 2 (a vector is one row); floats in the fewest digits that read back as the same value,
/// booleans as 1 and 0. Errors: data, for more axes or no elements, which CSV cannot hold.
std::string to_csv(const Tensor& tensor, const std::string& name);

/// With names for the rows and columns: the header starts with an empty cell.
std::string to_csv(const Tensor& tensor, const std::string& name,
                   const std::vector<std::string>& rows, const std::vector<std::string>& columns);

}  // namespace attn
