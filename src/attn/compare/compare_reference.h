// Compares results with their job, recomputed in float64: attn compare --reference.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/compare/comparison_report.h"
#include "attn/compare/gate.h"
#include "attn/diagnose/diagnosis.h"
#include "attn/job/document.h"

namespace attn {

/// The options as typed.
struct ReferenceOptions {
  /// Names of bounds/expected_error.h; "": from the dtype, or as everything else.
  std::string precision, sums, weights;
  std::vector<std::string> as;  ///< --as; the given tensors already have these names
  Tolerance tolerance;
  bool has_tolerance = false;         ///< use `tolerance` instead of the error bounds
  std::vector<Gate> gates = {};       ///< decide instead, for the tensors that they select
  SearchLimits search = {};           ///< of the search for what explains a difference
  bool keeps_elements = false;        ///< for pictures: of the reference and its bounds
  std::string origin_of_as = "--as";  ///< in messages; "" without flags
};

/// Matches the tensors of `given` with outputs of the job, computes these in float64 and compares
/// them: with the gates that select them, otherwise with the tolerance if there is one, otherwise
/// with the error bounds of the precision. Errors: as attn run; usage, if a tensor is not an
/// output, if an output has no bound, no tolerance and no gate, or if there is no baseline for a
/// gate.
CompareReport compare_to_reference(const TensorMap& given, Document document,
                                   const ReferenceOptions& options, TensorFiles& files);

}  // namespace attn
