// Where a result is wrong.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "attn/diagnose/evidence.h"
#include "attn/diagnose/variant.h"
#include "attn/problem/inputs.h"

namespace attn {

/// A line of Pattern that says everything: "all wrong elements are 0".
inline constexpr std::string_view kAllWrong = "all wrong elements are ";

/// The wrong elements of a result along its axes.
class Pattern {
 public:
  /// The lengths of the axes.
  explicit Pattern(const Matrices& view);

  /// Adds the elements of a result, or of some items and heads of it.
  void add(const Evidence& evidence, const HeadSample* heads = nullptr);

  /// One line for each of: batch items, heads, rows, columns, growth with position, rows with few
  /// visible keys, a factor of each row. `in`: the checked inputs; nullptr if unknown.
  std::vector<std::string> lines(const Inputs* in) const;

 private:
  std::vector<std::size_t> items_, heads_, rows_, columns_;      ///< numbers of wrong elements
  std::vector<double> row_squares_;                              ///< of errors
  double least_factor_ = HUGE_VAL, largest_factor_ = -HUGE_VAL;  ///< of the rows
  bool has_factors_ = true;                                      ///< each row is a multiple
  bool has_zeros_ = false, has_nan_ = false;                     ///< among the wrong elements
  bool are_blank_ = true;                                        ///< these are all of them
};

/// Of "row": "row 3", "rows 0 to 7", "every 16th row from 240 to 400", "rows 1, 3, 6", "rows 11,
/// ..., 63 (10 in all)".
std::string ranges_text(const std::string& name, const std::vector<std::size_t>& numbers);

}  // namespace attn
