// The report of `attn compare`, as text and as JSON.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "attn/compare/compare_axes.h"
#include "attn/compare/compare_hints.h"
#include "attn/compare/gate.h"
#include "attn/diagnose/diagnosis.h"
#include "attn/metrics/comparison.h"

namespace attn {

/// Two tensors of the same name and their differences.
struct TensorPair {
  Compared compared;
  Comparison found;
  std::vector<PartAxis> axes = {};          ///< batches and heads
  std::vector<PartComparison> parts = {};   ///< empty if the shapes differ
  std::vector<Hint> hints = {};             ///< what may explain the differences
  std::optional<Diagnosis> diagnosis = {};  ///< of a difference from the reference
  std::vector<GateOutcome> gates = {};      ///< if there are any, they decide

  bool passed() const {
    return gates.empty() ? found.same()
                         : std::all_of(gates.begin(), gates.end(),
                                       [](const GateOutcome& gate) { return gate.passed; });
  }
};

/// The gates of a pair, and what their metrics need.
struct Gating {
  std::vector<const Gate*> gates = {};
  DType stored = DType::f64;            ///< of A in a kernel
  std::optional<Tensor> baseline = {};  ///< if a gate names it
};

/// Compares two tensors: as a whole, and, if they do not pass, by batch and head. `width`: D of the
/// job; 0 if unknown.
TensorPair compared_pair(Compared compared, const TensorAxes& axes, std::size_t width,
                         const Gating& gating = {});

/// All comparisons, in the order of A.
struct CompareReport {
  std::vector<TensorPair> pairs;
  std::vector<std::string> only_in_a, only_in_b;
  Tolerance tolerance;
  bool to_reference = false;       ///< B was computed
  std::vector<std::string> notes;  ///< messages that are not part of the report

  bool same() const {
    return only_in_a.empty() && only_in_b.empty() &&
           std::all_of(pairs.begin(), pairs.end(),
                       [](const TensorPair& pair) { return pair.passed(); });
  }
};

/// A line for each tensor that passes; for others the cause, where they differ, and the extremes.
/// With `details`, all figures.
std::string report_text(const CompareReport& report, bool details = false);
std::string report_json(const CompareReport& report);  ///< one line

}  // namespace attn
