// Parts of a tensor, written after its name: "W[:, 0:768]", "in_proj_weight[0/3]", "W.T".
//
//   [A, B, ...]   for each axis in order; axes that are not listed are kept whole. Each is one of
//     :           the whole axis
//     I           element I, without its axis
//     I:J         elements I to J - 1; I or J may be left out; negative ones count from the end
//     I/N         part I of N equal parts
//     I:J/N       parts I to J - 1 of N equal parts
//     I/N in G    the same in each of G equal groups, joined: the queries of the 12 heads of
//                 GPT-NeoX's query_key_value are [0/3 in 12]
//   .T            the transpose of a matrix
//
// They can be repeated: "W[0/3].T". Unlike in NumPy, an element beyond the end of its axis is an
// error.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/io/read_budget.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A name, and the part of the tensor that the text after it selects; "" is the whole tensor.
struct NamedPart {
  std::string name, part;
};

/// Splits "NAME[...].T" before the brackets and ".T" at its end.
NamedPart split_part(const std::string& text);

/// The elements of `tensor` that `part` selects. The result shares the memory of `tensor` if it is
/// a range of the first axis whose length divides that of the axis and its first index, such as
/// [768:1536] of 2304; copies stay charged to `budget` under `name`. Errors: data; the caller adds
/// the names of the file and the tensor.
Tensor part_of(const Tensor& tensor, const std::string& part, const std::string& name,
               ReadBudget* budget);

/// The shape of part_of() of a tensor of this shape. Errors: as part_of().
Shape shape_of_part(const Shape& shape, const std::string& part);

/// Elements [first, last) of an axis.
struct ElementRange {
  std::size_t first, last;
};

/// An axis of a part.
struct AxisOfPart {
  std::size_t axis;    ///< of the tensor
  std::size_t length;  ///< in the part
  /// One selection after the other: the elements that each keeps of those before it, in order.
  /// Empty: the axis is whole.
  std::vector<std::vector<ElementRange>> selections = {};

  bool is_whole() const { return selections.empty(); }
};

/// The axes of part_of() a tensor of this shape. Errors: as part_of().
std::vector<AxisOfPart> axes_of_part(const Shape& shape, const std::string& part);

}  // namespace attn
