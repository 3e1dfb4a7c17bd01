// CSV (RFC 4180) for one matrix: rows are lines, cells are numbers separated by commas.
//
// In a .txt file, as numpy.savetxt writes it, lines that start with '#' are ignored. If its first
// row has no comma, cells are separated by white space, and all text after '#' and blank lines are
// ignored, too.
//
// Lines end in LF or CRLF. Blank lines at the end are ignored, and spaces and quotes around a cell
// are allowed. A first line without numbers is a header and is skipped. A first line that starts
// with an empty cell is a header as well, and the first column then contains row names. If all
// numbers are integers the dtype is int64 (or uint64 if a number needs it), otherwise float64.
// "nan", "inf", "-inf", "NaN", "Infinity" and "-Infinity" are numbers. Ragged rows, blank lines
// between rows, empty cells, text, hexadecimal numbers, overflow, ';' separators and NUL bytes are
// errors that state the line and column; columns are counted in cells.
#pragma once

#include <string>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/read_budget.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Always a 2-D tensor. Its elements stay charged to `budget`, if any. Errors: data.
Tensor read_csv(const FileBytes& file, const std::string& name, ReadBudget* budget = nullptr);

/// The names of rows and columns; empty, unless the first line starts with an empty cell.
struct CsvNames {
  std::vector<std::string> rows, columns;
};
/// They stay charged to `budget`. Errors: as read_csv().
CsvNames read_csv_names(const FileBytes& file, const std::string& name, ReadBudget& budget);

/// Rank 0 to 2 (a vector is one row). Floats have the shortest digits that read back as the same
/// double, booleans are 1 and 0. Errors: data, for more axes or no elements, which CSV cannot
/// express.
std::string to_csv(const Tensor& tensor, const std::string& name);

/// A text as a field (RFC 4180): in quotes if it has commas, quotes or line breaks.
std::string csv_field(const std::string& text);

}  // namespace attn
