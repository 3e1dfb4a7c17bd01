// Biases as text: an expression of real numbers that is added to the scores.
//
//   -0.5 * (q - k)                       a penalty that grows with distance
//   -slopes[h] * abs(q - k)              ALiBi, with the slopes in a table
//   table[min(abs(q - k), 31), h]        a learned bias for each distance
//   (doc[q] == doc[k]) * 2.5             comparisons are 0 or 1
//
// base/expression.h has the grammar, and problem/rule_parts.h the names and tables. The functions
// are abs, min, max, exp, exp2, log, log2 and sqrt. All numbers are float64; // and % round down,
// as in Python. The result is rounded to the dtype of the computation.
#pragma once

#include <memory>
#include <string>

#include "attn/base/expression.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn {

namespace rule {
struct Parts;
}  // namespace rule

/// A bias rule and its tables. Immutable.
class BiasRule {
 public:
  /// Takes the tables from `tensors`. `in` must have its lengths. Errors: data, with the position
  /// in the text.
  BiasRule(const std::string& text, const TensorMap& tensors, const Inputs& in);
  ~BiasRule();
  BiasRule(const BiasRule&) = delete;
  BiasRule& operator=(const BiasRule&) = delete;

  /// What is added to the scores of in.rows, in the dtype of the computation: (B, H, R, S), with 1
  /// for an axis along which the rule does not differ. `in` is the problem, or a part of it.
  /// Appended keys get 0, and so do pairs that are hidden if an operation has no result for them.
  /// Errors: data, if an operation has no finite result for another pair: with its position in the
  /// text and the values of b, h, q and k.
  Tensor values(const Inputs& in) const { return values(in, false); }
  /// The same, but where a rule differs by query and key, the values of keys outside of
  /// in.key_ranges, if these are known, are 0.
  Tensor values_of_seen_keys(const Inputs& in) const { return values(in, true); }
  Shape shape_of_values(const Inputs& in) const;

 private:
  Tensor values(const Inputs& in, bool only_seen) const;

  std::unique_ptr<const rule::Parts> parts_;
};

}  // namespace attn
