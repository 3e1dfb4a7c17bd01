#include "attn/examples/printed_numbers.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/csv.h"
#include "attn/print/numpy_text.h"
#include "attn/print/tensor_text.h"

namespace attn {
namespace {

/// A number as Python prints it, an array as its repr.
std::string item_text(const Tensor& item, const PrintOptions& options) {
  return item.rank() == 0 ? numpy_str(item, options) : repr_text(item, options);
}

std::vector<std::string> item_texts(const Show& show, const std::vector<Value>& values) {
  std::vector<std::string> items;
  if (!show.elements) {
    for (const Value& value : values) items.push_back(item_text(value.tensor, show.print_options));
    return items;
  }
  const Tensor& whole = values[0].tensor;
  if (whole.rank() == 0) fail_data(show.values[0].text + ": a single number has no elements");
  for (std::size_t i = 0; i < whole.shape()[0]; ++i)
    items.push_back(item_text(whole.at(i), show.print_options));
  return items;
}

std::string dimensions(const Show& show, const std::vector<Value>& values) {
  return "(" + join(item_texts(show, values), "x") + ")";
}

std::string size(const Show& show, const std::vector<Value>& values) {
  return "torch.Size([" + join(item_texts(show, values), ", ") + "])";
}

std::string scalar(const Show& show, const Tensor& tensor) {
  if (tensor.rank() == 0) return numpy_str(tensor, show.print_options);
  fail_data(show.values[0].text + ": expected a single number, found shape " +
            to_string(tensor.shape()));
}

/// Labels are not quoted, as in pandas.
std::string csv(const Show& show, const Tensor& tensor) {
  const Shape labels = {show.rows.size(), show.columns.size()};
  if (tensor.shape() != labels)
    fail_data(show.values[0].text + ": expected shape " + to_string(labels) +
              " to match rows and columns, found " + to_string(tensor.shape()));
  std::string text = show.corner;
  for (const std::string& column : show.columns) text += "," + column;
  text += "\n";
  for (std::size_t i = 0; i < show.rows.size(); ++i)
    text += show.rows[i] + "," + to_csv(tensor.at(i), show.values[0].text);
  return text;
}

}  // namespace

std::string text_of(const Show& show, const std::vector<Value>& values) {
  const std::string label = show.label.empty() ? "" : show.label + " ";
  switch (show.form) {
    case Form::print:
      return label + str_text(values[0].tensor, show.print_options) + "\n";
    case Form::repr:
      return repr_text(values[0].tensor, show.print_options) + "\n";
    case Form::scalar:
      return label + scalar(show, values[0].tensor) + "\n";
    case Form::list:
      return ipython_sequence(Sequence::list, item_texts(show, values)) + "\n";
    case Form::tuple:
      return ipython_sequence(Sequence::tuple, item_texts(show, values)) + "\n";
    case Form::dimensions:
      return dimensions(show, values) + "\n";
    case Form::size:
      return label + size(show, values) + "\n";
    case Form::csv:
      return csv(show, values[0].tensor);
    case Form::text:
      break;
  }
  return show.text + "\n";
}

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The number of digits after the decimal point.
int decimals(std::string_view number) {
  const std::size_t point = number.find('.'), end = std::min(number.find('e'), number.size());
  return point == std::string_view::npos ? 0 : static_cast<int>(end - point - 1);
}

int exponent(std::string_view number) {
  const std::size_t e = number.find('e');
  int value = 0;
  if (e == std::string_view::npos) return value;
  const std::size_t sign = number[e + 1] == '+' ? 2 : 1;
  std::from_chars(number.data() + e + sign, number.data() + number.size(), value);
  return value;
}

/// Parses a number. One just beyond the largest double becomes the largest double, which may be
/// printed as 1.8e+308.
double clamp_to_double(const std::string& number) {
  const double read = std::strtod(number.c_str(), nullptr);
  if (!std::isinf(read) || exponent(number) > std::numeric_limits<double>::max_exponent10)
    return read;
  return std::copysign(std::numeric_limits<double>::max(), read);
}

}  // namespace

std::vector<PrintedNumber> printed_numbers(std::string_view text) {
  std::vector<PrintedNumber> numbers;
  int max_decimals = 0;
  for (std::size_t at = 0; at < text.size();) {
    PrintedNumber number;
    const char* start = text.data() + at;
    const auto [rest, error] = std::from_chars(start, text.data() + text.size(), number.value);
    const bool in_word = at > 0 && is_word(text[at - 1]);
    const bool into_word = rest != text.data() + text.size() && is_word(*rest);
    if (error == std::errc::invalid_argument || in_word || into_word) {
      ++at;
      continue;
    }
    number.text.assign(start, rest);
    if (error != std::errc()) number.value = clamp_to_double(number.text);
    max_decimals = std::max(max_decimals, decimals(number.text));
    numbers.push_back(number);
    at += number.text.size();
  }
  for (PrintedNumber& number : numbers)
    number.half_unit = 0.5 * std::pow(10.0, exponent(number.text) - max_decimals);
  return numbers;
}

bool is_printed_as(double value, const PrintedNumber& number) {
  if (!std::isfinite(value) || !std::isfinite(number.value))
    return value == number.value || (std::isnan(value) && std::isnan(number.value));
  // Reading the printed number back rounds once.
  const double rounding = std::numeric_limits<double>::epsilon() * std::abs(value);
  return std::abs(value - number.value) <= number.half_unit + rounding;
}

}  // namespace attn
