// The lengths of a problem's axes. The first tensor that has an axis sets its length; all others
// must agree with it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/problem/axis.h"
#include "attn/problem/input_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Also collects all errors of the problem, so that they are reported together.
class AxisLengths {
 public:
  /// A length and the tensor or option that set it.
  struct Length {
    std::size_t length;
    std::string_view name;    ///< "W_Q", "heads"; in static storage
    Shape shape = {};         ///< of the tensor; empty for an option
    std::string remark = {};  ///< follows the shape in messages: "= 8" for an option

    /// "(4, 8)", "= 8", "(4, 8) with kv_heads = 2".
    std::string found() const { return (shape.empty() ? "" : to_string(shape)) + remark; }
  };

  /// Sets the length of an axis unless it is already known.
  void set_length(Axis axis, Length length);

  /// Sets the length of `axis` to that of `other`, if that is known.
  void equate(Axis axis, Axis other);

  /// Compares the shape of a given tensor with `axes`. If all known lengths agree, sets the unknown
  /// ones; otherwise reports a problem and sets none:
  ///   "W_Q: expected (3, *) to match embeddings (4, 3), found (2, 3)".
  /// `advice` is appended if the rank is correct.
  void take(Input input, const Tensor& tensor, const AxisList& axes, std::string_view advice = "");

  /// Whether the shape agrees with all known lengths of `axes`.
  bool agrees(const Shape& shape, const AxisList& axes) const;

  bool knows(Axis axis) const { return find(axis) != nullptr; }
  /// Errors: internal, if it is not known.
  const Length& operator[](Axis axis) const;

  void problem(Problem problem) { problems_.add(std::move(problem)); }
  void problem(Input subject, Problem problem);
  const ProblemList& problems() const { return problems_; }

 private:
  const Length* find(Axis axis) const;
  void report_mismatch(Input input, const Tensor& tensor, const AxisList& axes,
                       std::string_view advice);

  std::array<std::optional<Length>, kAxisCount> lengths_;
  ProblemList problems_;
};

}  // namespace attn
