// The numbers in printed text, with the precision in which they are printed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attn {

struct PrintedNumber {
  double value = 0;
  double half_unit = 0;  ///< half of what one more in the last printed place would be
  std::string text;
};

/// Numbers that are no part of a word ("float64" has none); "nan" and "inf" are numbers. Printed
/// arrays drop zeroes at the end, so the precision is that of the number with most decimals.
std::vector<PrintedNumber> printed_numbers(std::string_view text);

/// Whether `value`, printed like `number`, would have given it.
bool is_printed_as(double value, const PrintedNumber& number);

}  // namespace attn
