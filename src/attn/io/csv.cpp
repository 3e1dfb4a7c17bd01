#include "attn/io/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <type_traits>

#include "attn/base/error.h"
#include "attn/base/numbers.h"
#include "attn/base/printable.h"
#include "attn/io/csv_lines.h"
#include "attn/io/text.h"

namespace attn {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<double> non_finite(std::string_view word) {
  double number = 0;
  if (non_finite_named(word, number)) return number;
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf") return std::numeric_limits<double>::infinity();
  if (word == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

/// Whether a number was meant, be it a good one or not: a sign if any, then a digit.
bool starts_number(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  if (text.starts_with('.')) text.remove_prefix(1);
  return !text.empty() && is_digit(text[0]);
}

/// All of `text` as a T; `overflow` tells why there is none.
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
  if (!starts_number(text)) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);
  if (const auto integer = whole<std::int64_t>(text, overflow)) return *integer;
  if (overflow) {
    if (const auto large = whole<std::uint64_t>(text, overflow)) return *large;
    overflow = true;  // below -2^63 is no unsigned number at all
    return std::nullopt;
  }
  if (const auto number = whole<double>(text, overflow)) return *number;
  // from_chars says the same of what is too small, which is 0 or next to it, as of what is too
  // large.
  if (overflow)
    if (const double tiny = std::strtod(std::string(text).c_str(), nullptr); std::fabs(tiny) < 1) {
      overflow = false;
      return tiny;
    }
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : name_(name), lines_(text, name) {}

  Tensor read() {
    CsvLine line;
    lines_.next(line);
    width_ = line.cells.size();
    first_ = line.number;
    labelled_ = width_ > 1 && line.cells[0].text.empty();
    if (is_header(line))
      check_header(line);
    else
      read_row(line);
    while (lines_.next(line)) read_row(line);
    if (numbers_.empty())
      throw Error(ErrorKind::data, Problem{.where = {name_}, .message = "has no rows of numbers"});
    return tensor();
  }

 private:
  [[noreturn]] void fail(std::size_t line, std::optional<std::size_t> column,
                         const std::string& what) const {
    throw Error(
        ErrorKind::data,
        Problem{
            .where = {name_}, .line = line, .column = column ? *column + 1 : 0, .message = what});
  }

  bool is_header(const CsvLine& line) const {
    return !line.blank() &&
           (labelled_ || std::none_of(line.cells.begin(), line.cells.end(), [](CsvCell cell) {
              return starts_number(cell.text) || non_finite(cell.text);
            }));
  }

  void check_header(const CsvLine& line) const {
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
    for (std::size_t i = labelled_ ? 1 : 0; i < width_; ++i) {
      bool overflow = false;
      const auto number = parse_number(line.cells[i].text, overflow);
      if (!number) fail_cell(line, i, overflow);
      census_.count(*number);
      numbers_.push_back(*number);
    }
  }

  [[noreturn]] void fail_cell(const CsvLine& line, std::size_t column, bool overflow) const {
    const std::string_view text = line.cells[column].text;
    if (text.empty()) fail(line.number, column, "is empty, expected a number");
    std::string what =
        overflow ? "expected a number that fits 64 bits, found " : "expected a number, found ";
    what += "'" + printable(std::string(text)) + "'";
    if (text.find_first_of(";\t ") != std::string_view::npos)
      what += " (cells are separated by ',')";
    else if (line.number == first_ && !overflow)
      what += " (a header holds no numbers)";
    fail(line.number, column, what);
  }

  Tensor tensor() const {
    const std::size_t columns = width_ - (labelled_ ? 1 : 0);
    Tensor result(census_.dtype(name_), {numbers_.size() / columns, columns});
    visit(result.dtype(), [&]<class T>(Type<T>) {
      if constexpr (std::is_arithmetic_v<T>)
        std::transform(numbers_.begin(), numbers_.end(), result.mutable_data<T>().begin(),
                       number_to<T>);
    });
    return result;
  }

  const std::string& name_;
  CsvLines lines_;
  std::size_t width_ = 0;  ///< cells in a line
  std::size_t first_ = 0;  ///< the line that says so
  std::size_t blank_ = 0;  ///< the first blank line
  bool labelled_ = false;  ///< column 0 holds names
  std::vector<Number> numbers_;
  NumberCensus census_;
};

}  // namespace

Tensor read_csv(const FileBytes& file, const std::string& name) {
  return Reader(checked_text(file.text(), name), name).read();
}

}  // namespace attn
