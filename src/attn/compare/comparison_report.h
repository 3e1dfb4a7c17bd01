// The report of `attn compare`, as text and as JSON.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "attn/compare/compare_axes.h"
#include "attn/report/comparison.h"

namespace attn {

/// Two tensors of the same name and their differences.
struct TensorPair {
  Compared compared;
  Comparison found;
  std::vector<PartAxis> axes = {};      ///< batches and heads
  std::vector<Part> parts = {};         ///< empty if the shapes differ
  std::vector<std::string> hints = {};  ///< what may explain the differences
};

/// Compares two tensors: as a whole, and, if there are differences, by batch and head. `width`: D
/// of the job; 0 if unknown.
TensorPair compared_pair(Compared compared, const TensorAxes& axes, std::size_t width);

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
                       [](const TensorPair& pair) { return pair.found.same(); });
  }
};

std::string report_text(const CompareReport& report);
std::string report_json(const CompareReport& report);  ///< one line

}  // namespace attn
