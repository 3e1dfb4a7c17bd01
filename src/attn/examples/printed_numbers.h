// Prints values as a notebook does, and finds numbers in printed text, with their printed
// precision.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attn/examples/example.h"
#include "attn/examples/value.h"

namespace attn {

/// The text of `show` for these values; ends in a newline. Errors: data, for values that do not fit
/// the form.
std::string text_of(const Show& show, const std::vector<Value>& values);

struct PrintedNumber {
  double value = 0;
  double half_unit = 0;  ///< half a unit in the last printed digit
  std::string text;
};

/// The numbers that are not part of a word (none in "float64"); "nan" and "inf" are numbers. NumPy
/// omits trailing zeros, so all have the precision of the number with the most decimals.
std::vector<PrintedNumber> printed_numbers(std::string_view text);

/// Whether `value` equals `number` at the printed precision.
bool is_printed_as(double value, const PrintedNumber& number);

}  // namespace attn
