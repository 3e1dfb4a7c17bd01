// Finds numbers in printed text, with their printed precision.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attn {

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
