// Masks as text: an expression of integers says which keys a query sees.
//
//   q >= k and (q - k < 128 or k < 4)    a window of 128 keys and the first four keys
//   k < 256 or q >= k                    causal after a prefix of 256 keys
//   q >= k and q // 512 == k // 512      causal chunks of 512 tokens
//   image[q] == image[k]                 a table of the job says to which image each token belongs
//
// base/expression.h has the grammar, and problem/rule_parts.h the names and tables. The functions
// are abs, min and max. // and % round down, as in Python. Numbers other than 0 are true. Integers
// have 64 bits.
//
// Whole spans of keys are decided at once: interval arithmetic bounds each part of the expression.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attn/base/expression.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The expression of a rule with the tables among `tensors`. Errors: usage, with the position in
/// the text.
Expression parse_mask_rule(const std::string& text, const TensorMap& tensors);

namespace rule {
struct Compiled;
class Evaluator;
}  // namespace rule

/// The most memory that an element of a table takes in both kinds of rules, with the bounds of
/// ranges.
inline constexpr std::size_t kBytesOfTableElement = 72;

/// A mask rule and its tables. Immutable.
class MaskRule {
 public:
  /// All of `rules`. Takes the tables from `tensors`. `in` must have its lengths. Errors: data,
  /// with the position in the text.
  MaskRule(const std::vector<std::string>& rules, const TensorMap& tensors, const Inputs& in);
  ~MaskRule();
  MaskRule(const MaskRule&) = delete;
  MaskRule& operator=(const MaskRule&) = delete;

  bool uses_items() const;  ///< whether batch items have masks of their own
  bool uses_heads() const;

 private:
  friend class RuleRows;
  std::unique_ptr<const rule::Compiled> compiled_;
};

/// The rule for the queries of one batch item and head. Not thread-safe.
class RuleRows {
 public:
  /// `in` must outlive this object. `entry` is one of in.token_positions.
  RuleRows(const Inputs& in, std::size_t entry, std::size_t head);
  ~RuleRows();

  // Errors: data, if an operation has no result for a pair: with its position in the text and the
  // values of b, h, q and k.

  /// Narrows the range to the keys that the rule shows. False if these are not contiguous.
  bool narrow(std::size_t query, kernel::KeyRange& range);
  /// Sets visible[key] for keys [begin, end).
  void show(std::size_t query, std::size_t begin, std::size_t end, bool* visible);

 private:
  std::unique_ptr<rule::Evaluator> evaluator_;
};

}  // namespace attn
