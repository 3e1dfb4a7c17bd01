// The lines of a CSV file, cut into cells.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// One cell: without the spaces and quotes round it, doubled quotes still doubled.
struct CsvCell {
  std::string_view text;
  bool quoted = false;
};

struct CsvLine {
  std::size_t number = 0;  ///< of its first line in the file, from 1
  std::vector<CsvCell> cells;
  bool blank() const { return cells.size() == 1 && cells[0].text.empty() && !cells[0].quoted; }
};

class CsvLines {
 public:
  /// Both outlive this; `name` stands in errors.
  CsvLines(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  /// Reads the next line into `line`; false at the end of the text. Errors: data, for a quote
  /// without an end or with text after it.
  bool next(CsvLine& line);

 private:
  CsvCell next_cell(std::size_t column);
  CsvCell next_quoted_cell(std::size_t column);

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0, number_ = 1;
};

}  // namespace attn
