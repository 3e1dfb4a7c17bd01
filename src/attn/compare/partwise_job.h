// A large job, and the comparison of its results with it some heads at a time: neither float64
// inputs nor results of all heads are in memory.
#pragma once

#include <string>
#include <vector>

#include "attn/bounds/expected_error.h"
#include "attn/compare/comparison_report.h"
#include "attn/diagnose/evidence.h"
#include "attn/diagnose/pattern.h"
#include "attn/diagnose/variant.h"
#include "attn/job/job.h"

namespace attn {

/// Bounds near the largest double overflow, and infinite ones accept any number. Both are f64.
/// Errors: data.
void require_finite_bounds(const std::string& name, const Tensor& reference, const Tensor& bounds);

class PartwiseJob {
 public:
  /// Whether the job has large queries, keys and values, and no other inputs with heads.
  static bool fits(const Job& job);
  /// Makes the numbers of these inputs float64 only when a part of them is read.
  static void convert_when_read(Job& job);

  /// `job` after convert_when_read(), and its checked inputs. Errors: data.
  PartwiseJob(const Job& job, const Inputs& in);

  /// Whether a result of this shape can be compared with this output of the job.
  bool has_parts(const PlannedOutput& planned, const Shape& result) const;

  /// Memory beside the tensors of the job, in bytes.
  std::size_t bytes() const;

  /// The comparison of a result with an output that has parts, as compared_pair() makes it.
  /// `compared` has the result only. Errors: data, if bounds overflow.
  struct Found {
    TensorPair pair;
    bool accepts_zeros = false;  ///< zeros would be within the bounds
    std::vector<double> errors;  ///< the largest of each matrix (B, H), relative to its bound
    Pattern pattern;             ///< of wrong elements
    Tensor result;               ///< some rows of all heads, (B, H, rows, C)
    Expected expected;           ///< the same of these
  };
  Found compare(Compared compared, const PlannedOutput& planned, const Precision& precision) const;

  /// Sampled heads of a result, for diagnose().
  struct Sample {
    HeadSample heads;
    Tensor result;
    Expected expected;
  };
  Sample sample(const Compared& compared, const PlannedOutput& planned, const Precision& precision,
                const std::vector<double>& errors) const;

  const Variant& variant() const { return whole_; }

 private:
  Matrices view_of(const PlannedOutput& planned) const;
  Expected expected_of(const PlannedOutput& planned, const Precision& precision,
                       const HeadSample& heads) const;
  std::vector<HeadSample> parts() const;

  Variant whole_;  ///< an attention_only()
  std::size_t B_, H_, G_, elements_;
};

}  // namespace attn
