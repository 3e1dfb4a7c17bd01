#include "attn/io/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/io/checked_text.h"
#include "attn/io/read_budget.h"

namespace attn {
namespace {

/// A cell without the spaces and quotes around it; doubled quotes stay doubled.
struct CsvCell {
  std::string_view text;
  bool quoted = false;
};

struct CsvLine {
  std::size_t number = 0;  ///< line number in the file, from 1
  std::vector<CsvCell> cells;
  bool blank() const { return cells.size() == 1 && cells[0].text.empty() && !cells[0].quoted; }
};

struct CsvStyle {
  bool by_blanks = false;     ///< cells are separated by white space
  bool has_comments = false;  ///< lines that start with '#'
};

class CsvLines {
 public:
  /// All must outlive this; `name` is used in errors.
  CsvLines(std::string_view text, CsvStyle style, const std::string& name, MemoryCharge& charge)
      : text_(text), style_(style), name_(name), charge_(charge) {}

  /// Reads the next line into `line`; false at the end of the text. Errors: data, for a quote
  /// without an end or with text after it.
  bool next(CsvLine& line);

 private:
  bool next_words(CsvLine& line);
  CsvCell next_cell(std::size_t column);
  CsvCell next_quoted_cell(std::size_t column);

  std::string_view text_;
  CsvStyle style_;
  const std::string& name_;
  MemoryCharge& charge_;
  std::size_t at_ = 0, number_ = 1;
};

constexpr std::string_view kBlanks = " \t";

std::string_view trimmed(std::string_view text) {
  const std::size_t start = text.find_first_not_of(kBlanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(kBlanks) + 1 - start);
}

/// The words of the next line that has some before a '#'.
bool CsvLines::next_words(CsvLine& line) {
  constexpr std::string_view kSpace = " \t\r\v\f";
  line.cells.clear();
  for (; line.cells.empty() && at_ < text_.size(); ++number_) {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string_view rest = text_.substr(at_, end - at_);
    rest = rest.substr(0, rest.find('#'));
    for (std::size_t start; (start = rest.find_first_not_of(kSpace)) != rest.npos;) {
      const std::size_t stop = std::min(rest.find_first_of(kSpace, start), rest.size());
      charge_.grow(line.cells);
      line.cells.push_back({rest.substr(start, stop - start)});
      rest.remove_prefix(stop);
    }
    line.number = number_;
    at_ = end + 1;
  }
  return !line.cells.empty();
}

bool CsvLines::next(CsvLine& line) {
  if (style_.by_blanks) return next_words(line);
  while (style_.has_comments && at_ < text_.size() && text_[at_] == '#') {
    at_ = std::min(text_.find('\n', at_), text_.size()) + 1;
    ++number_;
  }
  if (at_ >= text_.size()) return false;
  line.number = number_;
  line.cells.clear();
  while (true) {
    charge_.grow(line.cells);
    line.cells.push_back(next_cell(line.cells.size() + 1));
    const bool ends = at_ >= text_.size() || text_[at_] == '\n';
    ++at_;
    if (ends) break;
  }
  ++number_;
  return true;
}

/// Leaves `at_` at the ',' or line break after the cell, or at the end.
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
    fail_data({.where = {name_}, .line = line, .column = column, .message = message});
  };
  const std::size_t from = at_;
  while (true) {
    at_ = text_.find('"', at_);
    if (at_ >= text_.size()) fail("the quote is not closed");
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

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<double> non_finite(std::string_view word) {
  double number = 0;
  if (parse_non_finite(word, number)) return number;
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf") return std::numeric_limits<double>::infinity();
  if (word == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

/// Whether the text was meant as a number, valid or not: an optional sign, then a digit.
bool looks_like_number(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  if (text.starts_with('.')) text.remove_prefix(1);
  return !text.empty() && is_digit(text[0]);
}

/// All of `text` as a T. Sets `overflow` if it is a number out of range.
template <class T>
std::optional<T> whole(std::string_view text, bool& overflow) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  overflow = stop == end && error == std::errc::result_out_of_range;
  if (stop != end || error != std::errc()) return std::nullopt;
  return value;
}

std::optional<Number> parse_number(std::string_view text, bool& overflow) {
  overflow = false;
  if (const auto number = non_finite(text)) return *number;
  if (!looks_like_number(text)) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);
  if (const auto integer = whole<std::int64_t>(text, overflow)) return *integer;
  if (overflow) {
    if (const auto large = whole<std::uint64_t>(text, overflow)) return *large;
    overflow = true;  // below -2^63
    return std::nullopt;
  }
  if (const auto number = whole<double>(text, overflow)) return *number;
  // std::from_chars reports underflow, where the value is 0 or subnormal, like overflow.
  if (overflow)
    if (const double tiny = std::strtod(std::string(text).c_str(), nullptr); std::fabs(tiny) < 1) {
      overflow = false;
      return tiny;
    }
  return std::nullopt;
}

/// A .txt file has comments, and its cells are separated by white space unless its first row has a
/// comma.
CsvStyle style_of(std::string_view text, const std::string& path) {
  CsvStyle style;
  style.has_comments = style.by_blanks = path.ends_with(".txt");
  while (style.by_blanks && !text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::string_view content = trimmed(line.substr(0, line.find('#')));
    if (content.find(',') != content.npos) style.by_blanks = false;
    if (!content.empty() && content != "\r") break;
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return style;
}

/// The text of a cell without the quotes that are doubled in it.
std::string cell_text(const CsvCell& cell) {
  std::string text(cell.text);
  for (std::size_t at = 0; cell.quoted && (at = text.find("\"\"", at)) != text.npos; ++at)
    text.erase(at, 1);
  return text;
}

class CsvReader {
 public:
  /// Stores the names of rows and columns in `names`, unless it is nullptr. Errors: data.
  CsvReader(const FileBytes& file, const std::string& name, MemoryCharge& charge, CsvNames* names)
      : text_(checked_text(file.text(), name)),
        style_(style_of(text_, file.path)),
        name_(name),
        charge_(charge),
        names_(names),
        lines_(text_, style_, name, charge) {}

  Tensor read() {
    CsvLine line;
    if (!lines_.next(line)) fail_empty();
    width_ = line.cells.size();
    first_ = line.number;
    labelled_ = width_ > 1 && line.cells[0].text.empty();
    has_header_ = is_header(line);
    if (has_header_)
      check_header(line);
    else
      read_row(line);
    while (lines_.next(line)) read_row(line);
    if (numbers_.empty()) fail_empty();
    return tensor();
  }

 private:
  [[noreturn]] void fail(std::size_t line, std::optional<std::size_t> column,
                         const std::string& what) const {
    fail_data(
        {.where = {name_}, .line = line, .column = column ? *column + 1 : 0, .message = what});
  }

  [[noreturn]] void fail_empty() const {
    fail_data({.where = {name_}, .message = "has no rows of numbers"});
  }

  void add_name(const CsvCell& cell, std::vector<std::string> CsvNames::*list) {
    if (names_ == nullptr) return;
    charge_.grow(names_->*list);
    charge_.add(cell.text.size());
    (names_->*list).push_back(cell_text(cell));
  }

  bool is_header(const CsvLine& line) const {
    return !line.blank() &&
           (labelled_ || std::none_of(line.cells.begin(), line.cells.end(), [](CsvCell cell) {
              return looks_like_number(cell.text) || non_finite(cell.text);
            }));
  }

  void check_header(const CsvLine& line) {
    for (std::size_t i = labelled_ ? 1 : 0; i < width_; ++i)
      add_name(line.cells[i], &CsvNames::columns);
    for (std::size_t i = 0; i < width_; ++i)
      if (!line.cells[i].quoted && line.cells[i].text.find_first_of(";\t") != std::string::npos)
        fail_cell(line, i, false);
  }

  void read_row(const CsvLine& line) {
    if (line.blank()) {
      if (blank_ == 0) blank_ = line.number;
      return;
    }
    if (blank_ > 0) fail(blank_, {}, "is blank, but more rows follow");
    if (line.cells.size() != width_)
      fail(line.number, {},
           "has " + counted(line.cells.size(), "cell") + ", line " + std::to_string(first_) +
               " has " + std::to_string(width_));
    if (labelled_) add_name(line.cells[0], &CsvNames::rows);
    for (std::size_t i = labelled_ ? 1 : 0; i < width_; ++i) {
      bool overflow = false;
      const auto number = parse_number(line.cells[i].text, overflow);
      if (!number) fail_cell(line, i, overflow);
      census_.count(*number);
      // An integer has no such sign, but a float next to it makes all numbers floats.
      if (const std::string_view text = line.cells[i].text;
          text[0] == '-' && text.find_first_not_of("-0") == std::string_view::npos) {
        charge_.grow(negative_zeros_);
        negative_zeros_.push_back(numbers_.size());
      }
      charge_.grow(numbers_);
      numbers_.push_back(*number);
    }
  }

  [[noreturn]] void fail_cell(const CsvLine& line, std::size_t column, bool overflow) const {
    const std::string_view text = line.cells[column].text;
    if (text.empty()) fail(line.number, column, "is empty, expected a number");
    std::string what = "expected a number";
    if (overflow)
      what +=
          text.find_first_of(".eE") == text.npos ? " that fits 64 bits" : " that fits a float64";
    what += ", found '" + printable(std::string(text)) + "'";
    const bool may_be_name = column == 0 && width_ > 1 && has_header_ && !labelled_ &&
                             numbers_.empty() && line.number != first_ && !style_.by_blanks &&
                             !looks_like_number(text) &&
                             text.find_first_of(";\t") == std::string_view::npos;
    if (may_be_name)
      what += " (if column 1 holds names, leave the first cell of the header empty)";
    else if (text.find_first_of(";\t ") != std::string_view::npos)
      what += style_.by_blanks ? " (cells are separated by white space or ',')"
                               : " (cells are separated by ',')";
    else if (line.number == first_ && !overflow)
      what += " (a header cannot contain numbers)";
    fail(line.number, column, what);
  }

  Tensor tensor() const {
    const std::size_t columns = width_ - (labelled_ ? 1 : 0);
    charge_.add(numbers_.size(), size_of(census_.dtype(name_)));
    Tensor result(census_.dtype(name_), {numbers_.size() / columns, columns});
    visit(result.dtype(), [&]<class T>(Type<T>) {
      if constexpr (std::is_arithmetic_v<T>)
        std::transform(numbers_.begin(), numbers_.end(), result.mutable_data<T>().begin(),
                       number_to<T>);
      if constexpr (std::is_floating_point_v<T>)
        for (const std::size_t i : negative_zeros_) result.mutable_data<T>()[i] = T{-0.0};
    });
    return result;
  }

  const std::string_view text_;
  const CsvStyle style_;
  const std::string& name_;
  MemoryCharge& charge_;
  CsvNames* names_;
  CsvLines lines_;
  std::size_t width_ = 0;  ///< cells in a line
  std::size_t first_ = 0;  ///< the line that sets width_
  std::size_t blank_ = 0;  ///< the first blank line
  bool has_header_ = false;
  bool labelled_ = false;  ///< column 0 contains row names
  std::vector<Number> numbers_;
  std::vector<std::size_t> negative_zeros_;  ///< which of them are "-0"
  NumberCensus census_;
};

template <class T>
void append_csv_cell(std::string& out, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? '1' : '0';
  } else if constexpr (std::is_integral_v<T>) {
    append_number(out, value);
  } else if (const auto wide = static_cast<double>(value); std::isfinite(wide)) {
    append_number(out, wide);
  } else {
    out += std::isnan(wide) ? "nan" : wide > 0 ? "inf" : "-inf";
  }
}

}  // namespace

Tensor read_csv(const FileBytes& file, const std::string& name, ReadBudget* budget) {
  MemoryCharge parsing(budget, name);
  Tensor tensor = CsvReader(file, name, parsing, nullptr).read();
  parsing.release_to(tensor.bytes());
  parsing.keep();
  return tensor;
}

CsvNames read_csv_names(const FileBytes& file, const std::string& name, ReadBudget& budget) {
  CsvNames names;
  MemoryCharge parsing(&budget, name);
  CsvReader(file, name, parsing, &names).read();
  std::size_t bytes = 0;
  for (const auto list : {&CsvNames::rows, &CsvNames::columns})
    for (const std::string& each : names.*list) bytes += sizeof each + each.size();
  parsing.release_to(std::min(bytes, parsing.bytes()));
  parsing.keep();
  return names;
}

std::string to_csv(const Tensor& tensor, const std::string& name) {
  if (tensor.rank() > 2 || tensor.size() == 0)
    fail_data({.where = {name},
               .message = "CSV holds one matrix, found shape " + to_string(tensor.shape())});
  const std::size_t columns = tensor.rank() == 0 ? 1 : tensor.shape().back();
  std::string out;
  visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto cells = tensor.data<T>();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      append_csv_cell(out, cells[i]);
      out += (i + 1) % columns == 0 ? '\n' : ',';
    }
  });
  return out;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace attn
