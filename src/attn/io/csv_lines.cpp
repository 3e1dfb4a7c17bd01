#include "attn/io/csv_lines.h"

#include <algorithm>

#include "attn/base/error.h"

namespace attn {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view trimmed(std::string_view text) {
  const std::size_t start = text.find_first_not_of(kBlanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(kBlanks) + 1 - start);
}

}  // namespace

bool CsvLines::next(CsvLine& line) {
  if (at_ >= text_.size()) return false;
  line.number = number_;
  line.cells.clear();
  while (true) {
    line.cells.push_back(next_cell(line.cells.size() + 1));
    const bool ends = at_ >= text_.size() || text_[at_] == '\n';
    ++at_;
    if (ends) break;
  }
  ++number_;
  return true;
}

/// Leaves `at_` at the ',' or line break behind the cell, or at the end.
CsvCell CsvLines::next_cell(std::size_t column) {
  const std::size_t start = text_.find_first_not_of(kBlanks, at_);
  if (start < text_.size() && text_[start] == '"') {
    at_ = start + 1;
    return next_quoted_cell(column);
  }
  const std::size_t from = at_;
  while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n') ++at_;
  std::string_view text = text_.substr(from, at_ - from);
  if ((at_ >= text_.size() || text_[at_] == '\n') && text.ends_with('\r')) text.remove_suffix(1);
  return {trimmed(text)};
}

CsvCell CsvLines::next_quoted_cell(std::size_t column) {
  const auto fail = [&, line = number_](const char* message) {
    throw Error(ErrorKind::data,
                Problem{.where = {name_}, .line = line, .column = column, .message = message});
  };
  const std::size_t from = at_;
  while (true) {
    at_ = text_.find('"', at_);
    if (at_ >= text_.size()) fail("the quote has no end");
    if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
    at_ += 2;
  }
  const std::string_view text = text_.substr(from, at_ - from);
  number_ += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  at_ = std::min(text_.find_first_not_of(" \t\r", at_ + 1), text_.size());
  if (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n')
    fail("text after the closing quote");
  return {text, true};
}

}  // namespace attn
