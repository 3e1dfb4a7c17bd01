// Error bounds of everything from scores to the context before gates, as one operation, and of its
// derivatives. bounds/gradient_error.h has the formulas.
//
// Computed for one query head and some queries at a time, so that no matrix of all scores is in
// memory. The results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "attn/bounds/error_ops.h"
#include "attn/bounds/expected_error.h"
#include "attn/problem/inputs.h"

namespace attn {

struct AttendedOperands {
  Bounded queries, keys, values;  ///< (B, H, R, D), (B, G, S, D), (B, G, S, Dv)
  Biases<Bounded> biases;
  std::optional<Bounded> sinks, head_scale;  ///< (H)
};

class AttendedErrors {
 public:
  /// Both must outlive this object. Scores are dot products, and the normaliser is softmax over
  /// keys.
  AttendedErrors(const Inputs& in, const Precision& precision, AttendedOperands operands);

  /// (B, H, R, Dv), stored.
  const Bounded& context() const { return context_; }

  struct Wanted {
    bool queries = false, keys = false, values = false, sinks = false, head_scale = false;
    std::vector<bool> biases;  ///< for each of the operands

    bool any_but_values() const;
  };
  struct Derivatives {
    std::optional<Bounded> queries, keys, values, sinks, head_scale;  ///< in the operands' shapes
    std::vector<std::optional<Bounded>> biases;
    Bounded delta;  ///< (B, H, R)
  };
  /// g: the derivative by the context.
  Derivatives derivatives(const Bounded& g, const Wanted& wanted) const;

 private:
  class Head;
  class DerivativeSums;
  struct BiasSums;
  struct Filled;

  void for_each_kv_head(bool in_order,
                        const std::function<void(std::size_t, std::size_t)>& f) const;

  const Inputs& in_;
  const Precision& precision_;
  const AttendedOperands operands_;
  Bounded context_;
};

/// An upper bound of the memory of an AttendedErrors, of what it returns, and of derivatives by
/// `biases`, in bytes.
std::size_t bytes_of_attended_errors(const Inputs& in, bool has_wanted_biases);

}  // namespace attn
